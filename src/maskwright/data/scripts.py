"""Detection of Chinese text: Han characters of texts that are not Japanese."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray

IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""First and last of each block: those of google-research/bert, tokenization.py (`_is_chinese_char`), and the later ones
on the same planes."""
# Unicode's Han script (Scripts.txt): the iteration mark 々 and the number 〇 too.
_HAN = ((0x3005, 0x3005), (0x3007, 0x3007), *IDEOGRAPHS)
KANA_BLOCKS = (0x3041, 0x30FF)
"""First and last of hiragana and katakana, with their marks."""
# Letters of kana only: the middle dot ・ and the long mark ー also stand in Chinese text.
_KANA = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0xFF66, 0xFF6F), (0xFF71, 0xFF9D))

_FIRST_IDEOGRAPH, _LAST_IDEOGRAPH = 0x4E00, 0x9FFF

HAN_CLASS = "".join(chr(first) if first == last else f"{chr(first)}-{chr(last)}" for first, last in _HAN)
"""The Han characters, as the inside of a regular expression's character class."""
COMMON_IDEOGRAPH_CLASS = "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPHS[:2])
"""The ideographs of the two large blocks of the basic plane."""
HAN_AND_KANA = "\u2e80-\u2fdf\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""The characters of Chinese and Japanese, between which a line break stands for no space."""
NO_SPACES_CLASS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\U00020000-\U0010ffff"
"""Scripts without spaces between words: Thai and Lao, Burmese, Khmer; kana, bopomofo and Han."""
_LETTER_MARKS = frozenset((0, *range(7, 10), *range(84, 133)))
"""Canonical combining classes of marks that are letters (Unicode's DerivedCombiningClass.txt): vowel signs, nukta,
voiced sound marks and virama; length, vowel and tone marks of Telugu, Thai, Lao and Tibetan."""
_SELECTORS = frozenset(map(chr, (0x34F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
"""Variation selectors and the grapheme joiner, which are no letters."""
_HAN_CHARACTER = re.compile(f"[{HAN_CLASS}]")
WORD = rf"[{HAN_CLASS}]|[^\W{HAN_CLASS}]+"
"""A word, as a regular expression: a Han character, or a run of letters, digits and underscores of other scripts."""


def is_ideograph(character: str) -> bool:
    """Return whether BERT's tokenizer makes the character a word of its own (々 and 〇 are letters to it)."""
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def is_han(character: str) -> bool:
    """Return whether a text begins with a Han character."""
    return _HAN_CHARACTER.match(character) is not None


def has_han(text: str) -> bool:
    return _HAN_CHARACTER.search(text) is not None


@cache
def _needs_marks(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3" or any(
        unicodedata.category(part) in ("Mn", "Mc")
        and unicodedata.combining(part) in _LETTER_MARKS
        and part not in _SELECTORS
        for part in unicodedata.normalize("NFD", character)
    )


def share_needing_marks(texts: Iterable[str]) -> float:
    """Return the share of characters that are other letters, or several, without their combining marks.

    These are vowel signs and viramas of Indic and other Asian scripts, kana with voiced sound marks, and Hangul
    syllables. Accents of Latin, Greek and Cyrillic letters and the points of Hebrew and Arabic do not count.
    """
    counts = Counter(chain.from_iterable(texts))
    return sum(count for each, count in counts.items() if _needs_marks(each)) / max(1, counts.total())


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text. Shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def chinese_characters(codes: NDArray[np.uint32], lengths: NDArray[np.int64]) -> BoolArray:
    """Return which characters of some texts are Chinese: Han characters of texts without kana. Shape (C,).

    A text with kana is Japanese, and a Chinese segmenter would cut its names and verbs wrongly.

    Args:
        codes: Code points of all texts joined. Shape (C,).
        lengths: Characters of each text. Shape (N,).
    """
    if not len(codes) or codes.max() < _HAN[0][0]:
        return np.zeros(len(codes), dtype=np.bool_)
    han, kana = _within(codes, _HAN), _within(codes, _KANA)
    if kana.any():
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        japanese = np.bincount(text_of[kana], minlength=len(lengths)) > 0
        han &= ~japanese[text_of]
    return han


def traditional_texts(codes: NDArray[np.uint32], lengths: NDArray[np.int64]) -> BoolArray:
    """Return which texts are traditional Chinese: with more characters that only Big5 has than that only GB 2312 has.

    Arguments as of `chinese_characters`. Shape (N,).
    """
    balance = np.zeros(len(codes), dtype=np.int64)
    ideographs = _within(codes, ((_FIRST_IDEOGRAPH, _LAST_IDEOGRAPH),))
    balance[ideographs] = _variants()[codes[ideographs] - _FIRST_IDEOGRAPH]
    total = np.concatenate([[0], np.cumsum(balance)])
    ends = np.cumsum(lengths)
    traditional: BoolArray = total[ends] - total[ends - lengths] > 0
    return traditional


@cache
def _variants() -> NDArray[np.int8]:
    """Return for each unified ideograph 1 if it is in Big5 but not in GB 2312, -1 in the opposite case, else 0."""

    def is_in(codec: str) -> NDArray[np.int8]:
        return np.array([bool(chr(code).encode(codec, "ignore")) for code in codes], dtype=np.int8)

    codes = range(_FIRST_IDEOGRAPH, _LAST_IDEOGRAPH + 1)
    return is_in("big5") - is_in("gb2312")


def _within(codes: NDArray[np.uint32], ranges: tuple[tuple[int, int], ...]) -> BoolArray:
    is_inside = np.zeros(len(codes), dtype=np.bool_)
    for first, last in ranges:
        # One comparison for both ends: what lies below wraps round to a large number.
        is_inside |= codes - np.uint32(first) <= last - first
    return is_inside
