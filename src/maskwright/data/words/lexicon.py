"""Word lists, segmenter dictionaries and lexicons, and the search for entries (Aho and Corasick 1975)."""

import re
import unicodedata
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.extras import imported
from maskwright.core.storage.files import checksum
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.files import decode_lines, reading
from maskwright.data.scripts import NO_SPACES_CLASS
from maskwright.data.tokenizers.word_starts import JOINERS

_MAX_CHARACTERS = 200
_WITHOUT_SPACES = re.compile(f"[{NO_SPACES_CLASS}]")
_DICTIONARY_LINE = re.compile(rf"\s*(\S{{1,{_MAX_CHARACTERS}}})(?:\s+(\d+))?(?:\s+(\S+))?\s*")


def content_of(path: Path) -> str:
    """Return the checksum of a word list; DataError if it cannot be read."""
    with reading(path.expanduser(), _name(path)) as file:
        return checksum(file.read())


def read_dictionary(path: Path) -> list[tuple[str, int | None, str]]:
    """Read a segmenter's dictionary: each line is a word, its frequency (or None) and its part of speech (or "")."""
    words = []
    for number, line in _lines(path):
        if not (entry := _DICTIONARY_LINE.fullmatch(line)):
            raise DataError(
                f"{path}, line {number}: {_shown(line)} is not a word with its frequency and part of speech",
                allowed="`WORD`, `WORD FREQUENCY`, `WORD TAG` or `WORD FREQUENCY TAG`",
            )
        word, frequency, tag = entry.groups("")
        words.append((word, int(frequency) if frequency else None, tag))
    return words


def read_lexicon(path: Path) -> list[str]:
    """Read a lexicon: one entry per line (.txt), or the first column of tab-separated lines (.tsv).

    Entries are in the form of clean text (NFC, single spaces), without repeats. Raises DataError if the file cannot be
    read, is empty, or a line is too long for an entry.
    """
    entries: dict[str, None] = {}
    for number, line in _lines(path):
        entry = " ".join((line.split("\t")[0] if path.suffix == ".tsv" else line).split())
        if not entry or len(entry) > _MAX_CHARACTERS:
            problem = f"an entry of {len(entry):,} characters" if entry else "an empty first column"
            raise DataError(
                f"{path}, line {number}: {problem} ({_shown(line)})",
                allowed=f"one phrase or entity per line, of 1 to {_MAX_CHARACTERS} characters",
                hint="Check that the file is a lexicon.",
            )
        entries[entry] = None
    return list(entries)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers from 1."""
    with reading(path.expanduser(), _name(path)) as file:
        text = unicodedata.normalize("NFC", decode_lines(file.read(), _name(path)).removeprefix("\ufeff"))
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{_name(path)} is empty", allowed="one word per line")
    return lines


def _name(path: Path) -> str:
    return f"the word list {path}"


def _shown(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 40 else line[:40] + "...")


class Spans(NamedTuple):
    """Runs [start, end) of characters of a text, ascending. Shapes (N,), int64."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def spans_of(pairs: Iterable[tuple[int, int]]) -> Spans:
    """Return (start, end) pairs as `Spans`."""
    table = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return Spans(table[:, 0], table[:, 1])


def longest(spans: Spans) -> Spans:
    """Return spans without overlap: from the left, the longest at each position, then those that begin after it."""
    order = np.lexsort((-spans.ends, spans.starts))
    starts, ends = spans.starts[order], spans.ends[order]
    if not len(starts) or (starts[1:] >= ends[:-1]).all():
        return Spans(starts, ends)
    kept, covered = [], -1
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start >= covered:
            kept.append(number)
            covered = end
    return Spans(starts[kept], ends[kept])


def has_lexicon_search() -> bool:
    return find_spec("ahocorasick") is not None


class Lexicon:
    """Finds the entries of a word list, which are in the form of clean text.

    A lower-case entry is found in any case ("machine learning" finds "Machine learning"), one with capitals as written
    ("US" never finds "us"). In scripts with spaces an entry begins and ends where a word does. Raises DataError if
    pyahocorasick is not installed, or cannot be loaded.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        library = imported("ahocorasick", "finding lexicons and collocations", "words", package="pyahocorasick")
        self._automaton = library.Automaton()
        self._entries: list[list[str]] = []
        for entry in entries:
            folded = _lowered(entry)
            number = self._automaton.get(folded, len(self._entries))
            if number == len(self._entries):
                self._automaton.add_word(folded, number)
                self._entries.append([])
            # Entries that differ only in case share a number.
            self._entries[number].append(entry)
        self._lengths = np.array([len(same[0]) for same in self._entries], dtype=np.int64)
        self._automaton.make_automaton()

    def find(self, text: str, inside: BoolArray, text_of: IntArray) -> Spans:
        """Return where entries stand in some texts; they may overlap.

        Args:
            text: Clean texts, joined. C characters.
            inside: Shape (C + 1,), True where no entry may begin or end: within a segmenter's word.
            text_of: Shape (C,), which text each character belongs to.
        """
        if not self._entries or not text:
            return spans_of(())
        hits = np.array(list(self._automaton.iter(_lowered(text))), dtype=np.int64).reshape(-1, 2)
        ends, numbers = hits[:, 0] + 1, hits[:, 1]
        starts = ends - self._lengths[numbers]
        possible = ~inside[starts] & ~inside[ends] & (text_of[starts] == text_of[ends - 1])
        return spans_of(
            (start, end)
            for start, end, number in np.stack([starts, ends, numbers], axis=1)[possible].tolist()
            if _is_edge(text, start)
            and _is_edge(text, end)
            and any(entry in (text[start:end], _lowered(entry)) for entry in self._entries[number])
        )


def _lowered(text: str) -> str:
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    # The rare capital (İ) whose lower-case form is two characters stays, so that positions stay.
    return "".join(letter if len(letter.lower()) > 1 else letter.lower() for letter in text)


def _is_edge(text: str, position: int) -> bool:
    """Return whether a word may begin or end at a position, judged by the two characters around it."""
    return position in (0, len(text)) or not (_joins(text[position - 1]) and _joins(text[position]))


def _joins(character: str) -> bool:
    """Return whether a character is part of words in a script with spaces between words."""
    if character.isascii():
        return character.isalnum() or character == "_"
    if unicodedata.category(character)[0] not in "LMN" and character not in JOINERS:
        return False
    return _WITHOUT_SPACES.match(character) is None
