"""Detection of Chinese text: Han characters of texts that are not Japanese."""

import re

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray

# Unicode's Han script, first and last of each block (Scripts.txt), with the iteration mark 々, the number 〇 and
# the compatibility ideographs.
_HAN = ((0x3005, 0x3005), (0x3007, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
# Letters of kana only: the middle dot ・ and the long mark ー also stand in Chinese text.
_KANA = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0xFF66, 0xFF6F), (0xFF71, 0xFF9D))

HAN_CLASS = "".join(chr(first) if first == last else f"{chr(first)}-{chr(last)}" for first, last in _HAN)
"""The Han characters, as the inside of a regular expression's character class."""
_HAN_CHARACTER = re.compile(f"[{HAN_CLASS}]")


def is_han(character: str) -> bool:
    """Return whether a text begins with a Han character."""
    return _HAN_CHARACTER.match(character) is not None


def code_points(text: str) -> NDArray[np.uint32]:
    """Return the code points of a text. Shape (characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def chinese_characters(codes: NDArray[np.uint32], lengths: NDArray[np.int64]) -> BoolArray:
    """Return which characters of some texts are Chinese: Han characters of texts without kana.

    A text with kana is Japanese, and a Chinese segmenter would cut its names and verbs wrongly.

    Args:
        codes: Code points of all texts joined. Shape (C,).
        lengths: Characters of each text. Shape (N,).

    Returns:
        Shape (C,).
    """
    if not len(codes) or codes.max() < _HAN[0][0]:
        return np.zeros(len(codes), dtype=np.bool_)
    han, kana = _within(codes, _HAN), _within(codes, _KANA)
    if kana.any():
        text_of = np.repeat(np.arange(len(lengths)), lengths)
        japanese = np.bincount(text_of[kana], minlength=len(lengths)) > 0
        han &= ~japanese[text_of]
    return han


def _within(codes: NDArray[np.uint32], ranges: tuple[tuple[int, int], ...]) -> BoolArray:
    found = np.zeros(len(codes), dtype=np.bool_)
    for first, last in ranges:
        # One comparison for both ends: what lies below wraps round to a large number.
        found |= codes - np.uint32(first) <= last - first
    return found
