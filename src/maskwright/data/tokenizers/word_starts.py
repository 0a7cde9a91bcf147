"""Word starts among the tokens of a text.

Combining marks are part of words: Hindi's vowels, Arabic's and Hebrew's vowel points, Thai's tones.

The two joiners count as marks: Persian writes U+200C within its words (می‌خواهم), the scripts of India shape their
clusters with both (Unicode Standard, sections 9.2, 12.1 and 23.2).

DEVIATION: GPT-2's pattern (openai/gpt-2, encoder.py) takes a run of letters for a word and a mark for something else,
so that हिन्दी would be six words and whole-word masking would leave half of it visible. The tokens stay as the pattern
cuts them; but no word begins at a mark, nor at a letter behind one.

WordPiece and byte-level BPE split a text into words before they cut words into tokens, so a token's word is known.
A unigram tokenizer splits at white space only, and the rest must be seen in the pieces: google-research/albert,
create_pretraining_data.py:393-425 (`is_start_piece`).

DEVIATION: ALBERT's code makes a word of its own of every piece that holds a character other than English letters and
ASCII punctuation, so that whole-word masking would tear Größe, числа and 2019 into pieces of which some stay visible.
Here a piece of any script's letters or digits goes on with its word unless it brings its space; a word begins at a
space, at a punctuation mark or symbol and behind it, and at an ideograph and behind it, as in BERT's tokenizer. And a
lone "▁" is no word of its own but the beginning of what follows it.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.backends import SPACE

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


def starts_of_numbered(word_numbers: Sequence[int | None]) -> BoolArray:
    """Return where the word number changes: the tokenizer's own pre-tokenization. Shape (T,)."""
    numbers = np.array(word_numbers, dtype=np.float64)
    starts = np.ones(len(numbers), dtype=np.bool_)
    starts[1:] = numbers[1:] != numbers[:-1]
    return starts


class PieceWords:
    """Finds word starts of a unigram tokenizer by looking ids up.

    Args:
        pieces: The vocabulary, in order of id.
        unk: Id of the unknown token: it may be a letter as well as a sign, and goes on with its word.
    """

    def __init__(self, pieces: Sequence[str], special: Iterable[int], unk: int) -> None:
        bodies = [piece.removeprefix(SPACE) for piece in pieces]
        self._spaced = _flags(piece.startswith(SPACE) for piece in pieces)
        self._lone = _flags(piece.startswith(SPACE) and not body for piece, body in zip(pieces, bodies, strict=True))
        self._begins = _flags(bool(body) and (_stands_alone(body[0]) or _has_ideograph(body)) for body in bodies)
        self._ends = _flags(bool(body) and _stands_alone(body[-1]) for body in bodies)
        alone = list(special)
        self._spaced[alone] = self._ends[alone] = True
        self._begins[unk] = self._ends[unk] = False

    def starts(self, ids: IntArray, firsts: NDArray[np.int64] | Sequence[int] = (0,)) -> BoolArray:
        """Return where words begin. Shape (T,).

        Args:
            ids: Shape (T,), tokens of one or more texts.
            firsts: Shape (N,), where the texts begin; a text of no tokens shares its place with the next one or stands
                at T.
        """
        starts: BoolArray = self._spaced[ids]
        starts[1:] |= (self._begins[ids[1:]] | self._ends[ids[:-1]]) & ~self._lone[ids[:-1]]
        places = np.asarray(firsts, dtype=np.int64)
        starts[places[places < len(ids)]] = True
        return starts


def _flags(values: Iterable[bool]) -> BoolArray:
    return np.fromiter(values, dtype=np.bool_)


def _stands_alone(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" or _is_ideograph(character)


def _has_ideograph(text: str) -> bool:
    return any(map(_is_ideograph, text))


def _is_ideograph(character: str) -> bool:
    # The blocks of google-research/bert, tokenization.py (`_is_chinese_char`), and the later ones on the same planes.
    code = ord(character)
    return (
        0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )
