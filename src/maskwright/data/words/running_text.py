"""Running text as numbers of words: what n-grams are counted over."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray
from maskwright.data.combining_marks import JOINERS
from maskwright.data.words.scripts import HAN_CLASS
from maskwright.data.words.segmenter import Segmenter

_HAN = re.compile(f"[{HAN_CLASS}]")
_HAN_OR_NOT = re.compile(f"[{HAN_CLASS}]+|[^{HAN_CLASS}]+")
_NUMBER = re.compile(r"[\d_]+")
_END = "\n"


@dataclass(frozen=True, slots=True)
class RunningText:
    """A text as numbers of words. W words and breaks, V different words.

    Attributes:
        ids: Shape (W,), int64: the number of each word; -1 for a break: a mark, a number, a sentence's end.
        spaced: Shape (W,), whether a space stands before it.
        names: The V words in small letters.
    """

    ids: NDArray[np.int64]
    spaced: BoolArray
    names: list[str]

    def surface(self, place: int, length: int) -> str:
        """Return some neighbouring words as they are written."""
        places = range(place, place + length)
        written = [(" " if self.spaced[each] else "") + self.names[self.ids[each]] for each in places]
        return "".join(written).removeprefix(" ")


class WordCounter:
    """Collects sentences.

    Args:
        segmenter: Who cuts Chinese text into words; None takes single characters for words.
    """

    def __init__(self, segmenter: Segmenter | None) -> None:
        self._segmenter = segmenter
        self._numbers: dict[str, int] = {}
        self._ids: list[NDArray[np.int32]] = []
        self._spaced: list[BoolArray] = []

    def add(self, sentences: Sequence[str]) -> None:
        """Cut some sentences into words."""
        find = _pieces().findall
        pieces: list[str] = []
        for sentence in sentences:
            pieces += find(sentence.lower())
            pieces.append(_END)
        pieces = self._with_words(pieces)
        words = [piece[1:] if piece[0] == " " else piece for piece in pieces]
        numbers = self._numbers
        ids = [
            numbers.setdefault(word, len(numbers)) if word[0].isalnum() and not _NUMBER.fullmatch(word) else -1
            for word in words
        ]
        self._ids.append(np.array(ids, dtype=np.int32))
        self._spaced.append(np.fromiter((piece[0] == " " for piece in pieces), dtype=np.bool_, count=len(pieces)))

    def _with_words(self, pieces: list[str]) -> list[str]:
        """Cut the runs of Han characters in pieces into words; a space before a run stays with its first word."""
        runs = [run for piece in pieces if _HAN.search(piece) for run in _HAN_OR_NOT.findall(piece) if _HAN.match(run)]
        if not runs:
            return pieces
        words = iter(self._segmenter.cut(runs) if self._segmenter else "".join(runs))
        cut: list[str] = []
        for piece in pieces:
            if not _HAN.search(piece):
                cut.append(piece)
                continue
            space = ""
            for run in _HAN_OR_NOT.findall(piece):
                if run == " ":
                    space = run
                elif not _HAN.match(run):
                    cut.append(run)
                else:
                    length = 0
                    while length < len(run):
                        word = next(words)
                        length += len(word)
                        cut.append(space + word)
                        space = ""
        return cut

    def counted(self) -> RunningText:
        """Return all that was added."""
        return RunningText(
            ids=np.concatenate([np.zeros(0, dtype=np.int32), *self._ids]).astype(np.int64),
            spaced=np.concatenate([np.zeros(0, dtype=np.bool_), *self._spaced]),
            names=list(self._numbers),
        )


@cache
def _pieces() -> re.Pattern[str]:
    """Return what finds words with the space before them, and single characters of other kinds.

    Letters carry their marks (Devanagari's vowels), and what joins the parts of a word (don't, co-operate) is in it.
    """
    marks = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
    part = f"[\\w{marks}{JOINERS}]+"
    return re.compile(f" ?{part}(?:['’-]{part})*|[^ ]")
