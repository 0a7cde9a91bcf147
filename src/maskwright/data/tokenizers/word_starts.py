"""Word starts among the tokens of a text.

Combining marks are part of words: Hindi's vowels, Arabic's and Hebrew's vowel points, Thai's tones. The two joiners
count as marks: Persian writes U+200C within words (می‌خواهم), the scripts of India shape clusters with both (Unicode
Standard, sections 9.2, 12.1 and 23.2).

DEVIATION: words of byte-level BPE are GPT-2's pre-tokens, so punctuation is a word of its own. fairseq's whole words
begin at a space only (data/encoders/gpt2_bpe.py:45), so punctuation belongs to the word before it. The released
RoBERTa masks single tokens.

DEVIATION: GPT-2's pattern (openai/gpt-2, encoder.py) ends a word before a combining mark, so that हिन्दी would be six
words and whole-word masking would leave half of it visible. The tokens stay as the pattern splits them, but no word
begins at a mark, nor at a letter after one.

WordPiece and byte-level BPE split a text into words first, so the word of a token is known. A unigram tokenizer splits
at white space only, and words must be found from the pieces: google-research/albert,
create_pretraining_data.py:393-425 (`is_start_piece`).

DEVIATION: in ALBERT's code every piece with a character other than English letters and ASCII punctuation is a word, so
that whole-word masking would leave parts of Größe, числа and 2019 visible. Here a piece of letters or digits of any
script continues its word unless it has a space; a word begins at a space, at and after a punctuation mark or symbol,
and at and after an ideograph, as in BERT's tokenizer. A lone "▁" belongs to the word that follows it.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.scripts import code_points, is_ideograph
from maskwright.data.tokenizers.backends import SPACE

JOINERS = "\u200c\u200d"
"""ZERO WIDTH NON-JOINER and ZERO WIDTH JOINER: invisible, of no category of marks, and within words."""

_LETTER, _MARK = 1, 2
# The first combining mark of all; text below it holds none.
_FIRST_MARK = 0x300


def without_starts_at_marks(
    starts: BoolArray, first: NDArray[np.int64], text: str, origin: NDArray[np.int64] | int = 0
) -> BoolArray:
    """Remove word starts within words that are written with marks.

    Args:
        starts: Shape (T,), word starts by the tokenizer's own splitting.
        first: Shape (T,), the first character of each token.
        text: One text, or several joined.
        origin: Shape (T,), where each token's text begins.
    """
    if text.isascii() or not len(first):
        return starts
    codes = code_points(text)
    if codes.max() < _FIRST_MARK:
        return starts
    kinds = _kinds()[np.minimum(codes, 0xFFFF)]
    # A token's leading space does not belong to its word.
    position = np.minimum(first + (codes[np.minimum(first, len(codes) - 1)] == ord(" ")), len(codes) - 1)
    here, before = kinds[position], np.where(position > origin, kinds[position - 1], 0)
    within = ((here == _MARK) & (before > 0)) | ((here == _LETTER) & (before == _MARK))
    kept: BoolArray = starts & ~within
    return kept


@cache
def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each character of the basic plane: letter, mark or neither (0). Shape (65536,)."""
    names = {"L": _LETTER, "M": _MARK}
    kinds = np.array([names.get(unicodedata.category(chr(code))[0], 0) for code in range(0x10000)], dtype=np.uint8)
    kinds[[ord(joiner) for joiner in JOINERS]] = _MARK
    return kinds


class PieceWords:
    """Finds the word starts of a unigram tokenizer from ids.

    Args:
        pieces: The vocabulary, in order of id.
        special: Ids of special tokens, which are words.
        unk: Id of the unknown token, which continues a word: it may be a letter.
    """

    def __init__(self, pieces: Sequence[str], special: Iterable[int], unk: int) -> None:
        bodies = [piece.removeprefix(SPACE) for piece in pieces]
        self._spaced = _flags(piece.startswith(SPACE) for piece in pieces)
        self._lone = _flags(piece.startswith(SPACE) and not body for piece, body in zip(pieces, bodies, strict=True))
        self._begins = _flags(
            bool(body) and (_stands_alone(body[0]) or any(map(is_ideograph, body))) for body in bodies
        )
        self._ends = _flags(bool(body) and _stands_alone(body[-1]) for body in bodies)
        alone = list(special)
        self._spaced[alone] = self._ends[alone] = True
        self._begins[unk] = self._ends[unk] = False

    def starts(self, ids: IntArray, firsts: NDArray[np.int64] | Sequence[int] = (0,)) -> BoolArray:
        """Return where words begin. Shape (T,).

        Args:
            ids: Shape (T,), tokens of one or more texts.
            firsts: Shape (N,), where the texts begin; T for empty ones at the end.
        """
        starts: BoolArray = self._spaced[ids]
        starts[1:] |= (self._begins[ids[1:]] | self._ends[ids[:-1]]) & ~self._lone[ids[:-1]]
        begins = np.asarray(firsts, dtype=np.int64)
        starts[begins[begins < len(ids)]] = True
        return starts


def _flags(values: Iterable[bool]) -> BoolArray:
    return np.fromiter(values, dtype=np.bool_)


def _stands_alone(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" or is_ideograph(character)
