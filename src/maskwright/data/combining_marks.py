"""Words whose letters carry marks: Hindi's vowels, Arabic's and Hebrew's vowel points, Thai's tones.

The two joiners count as marks: Persian writes U+200C within its words (می\u200cخواهم), the scripts of India shape their
clusters with both (Unicode Standard, sections 9.2, 12.1 and 23.2).

DEVIATION: GPT-2's pattern (openai/gpt-2, encoder.py) takes a run of letters for a word and a mark for something else,
so that हिन्दी would be six words and whole-word masking would leave half of it in sight. The tokens stay as the pattern
cuts them; but no word begins at a mark, nor at a letter behind one.
"""

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray

JOINERS = "\u200c\u200d"
"""ZERO WIDTH NON-JOINER and ZERO WIDTH JOINER: invisible, of no category of marks, and within words."""

_LETTER, _MARK = 1, 2
# The first combining mark of all; text below it holds none.
_FIRST_MARK = 0x300


def without_starts_at_marks(
    starts: BoolArray, first: NDArray[np.int64], text: str, origin: NDArray[np.int64] | int = 0
) -> BoolArray:
    """Take away word starts within words that are written with marks.

    Args:
        starts: Shape (T,), where words begin by the tokenizer's own splitting.
        first: Shape (T,), the first character of each token.
        text: What the tokens cover: one text, or several joined.
        origin: Shape (T,), where the text that each token belongs to begins.

    Returns:
        Shape (T,).
    """
    if text.isascii() or not len(first):
        return starts
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    if codes.max() < _FIRST_MARK:
        return starts
    kinds = _kinds()[np.minimum(codes, 0xFFFF)]
    # A token's leading space is not of its word.
    place = np.minimum(first + (codes[np.minimum(first, len(codes) - 1)] == ord(" ")), len(codes) - 1)
    here, before = kinds[place], np.where(place > origin, kinds[place - 1], 0)
    within = ((here == _MARK) & (before > 0)) | ((here == _LETTER) & (before == _MARK))
    kept: BoolArray = starts & ~within
    return kept


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return what each character of the basic plane is: a letter, a mark, or neither."""
    names = {"L": _LETTER, "M": _MARK}
    kinds = np.array([names.get(unicodedata.category(chr(code))[0], 0) for code in range(0x10000)], dtype=np.uint8)
    kinds[[ord(joiner) for joiner in JOINERS]] = _MARK
    return kinds
