"""Counts that add up over blocks, and the sizes and script shares of clean text."""

import unicodedata
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Self

import numpy as np

_SCRIPTS = {
    "LATIN": "Latin",
    "CJK": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "HANGUL": "Hangul",
    "CYRILLIC": "Cyrillic",
    "ARABIC": "Arabic",
    "DEVANAGARI": "Devanagari",
}


@cache
def _script(code: int) -> str:
    """Return the script of a letter, from the first word of its Unicode name; "" for other characters."""
    character = chr(code)
    return _SCRIPTS.get(unicodedata.name(character, "").split(" ")[0], "other") if character.isalpha() else ""


@dataclass(slots=True)
class Sums:
    """Base of counts: values add up, except that of fields named "longest..." the larger is kept."""

    def add(self, other: Self) -> None:
        for item in fields(self):
            value, more = getattr(self, item.name), getattr(other, item.name)
            setattr(self, item.name, max(value, more) if item.name.startswith("longest") else value + more)


@dataclass(slots=True)
class TextStatistics(Sums):
    """Sums over clean text in the stored form; feed it whole documents.

    Attributes:
        documents, sentences, characters, num_bytes: Totals; line ends are not text and not counted.
        longest_sentence: In characters.
        letters: Number of letters of each script.
    """

    documents: int = 0
    sentences: int = 0
    characters: int = 0
    num_bytes: int = 0
    longest_sentence: int = 0
    letters: Counter[str] = field(default_factory=Counter)

    def count(self, data: bytes) -> None:
        """Count stored text: one sentence a line, a blank line after each document."""
        units = np.frombuffer(data, dtype=np.uint8)
        ends = np.flatnonzero(units == 0x0A)
        characters = np.cumsum((units & 0xC0) != 0x80, dtype=np.int32)[ends]
        lengths = np.diff(characters, prepend=0).astype(np.int64) - 1
        documents = int((lengths == 0).sum())
        self.documents += documents
        self.sentences += len(lengths) - documents
        self.characters += int(lengths.sum())
        self.num_bytes += len(data) - len(ends)
        self.longest_sentence = max(self.longest_sentence, int(lengths.max(initial=0)))
        codes = np.frombuffer(data.decode().encode("utf-32-le"), dtype="<u4")
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            if script := _script(int(code)):
                self.letters[script] += int(count)

    def scripts(self) -> dict[str, float]:
        """Return the share of letters in each script that occurs, largest first, to three decimals."""
        total = self.letters.total()
        return {name: round(count / total, 3) for name, count in self.letters.most_common()}
