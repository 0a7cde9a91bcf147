"""A user's files of words: plain lists, the dictionary of a segmenter, and lexicons of phrases or entities."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import checksum

_MOST_CHARACTERS = 200
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class DictionaryWord:
    """One word that a segmenter is to know.

    Attributes:
        word: The word.
        frequency: How common it is, on the scale of the segmenter's own dictionary; None lets the segmenter choose
            one that keeps the word whole.
        tag: Its part of speech; "" for none.
    """

    word: str
    frequency: int | None = None
    tag: str = ""


def content_of(path: Path) -> str:
    """Return the checksum of a word list.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return checksum(path.expanduser())
    except OSError as error:
        raise _unreadable(path, error) from error


def read_words(path: Path) -> list[str]:
    """Read a list of words, one a line, without repeats, in the order of the file.

    Raises:
        DataError: If the file cannot be read or holds no word.
    """
    return list(dict.fromkeys(line.strip() for _, line in _lines(path)))


def read_dictionary(path: Path) -> list[DictionaryWord]:
    """Read a dictionary: on each line a word, then its frequency and its part of speech, each if wanted.

    Raises:
        DataError: If the file cannot be read, holds nothing, or a line is something else.
    """
    words = []
    for number, line in _lines(path):
        word, *rest = line.split()
        frequency = int(rest.pop(0)) if rest and _NUMBER.fullmatch(rest[0]) else None
        if len(rest) > 1 or len(word) > _MOST_CHARACTERS:
            raise DataError(
                f"{path}, line {number}: {_shown(line)} is not a word with its frequency and part of speech",
                allowed="`WORD`, `WORD FREQUENCY`, `WORD TAG` or `WORD FREQUENCY TAG`",
            )
        words.append(DictionaryWord(word, frequency, rest[0] if rest else ""))
    return words


def read_lexicon(path: Path) -> list[str]:
    """Read a lexicon: one entry a line (.txt), or the first column of tab-separated lines (.tsv).

    Entries come in the form of clean text (NFC, single spaces), without repeats, in the order of the file.

    Raises:
        DataError: If the file cannot be read, holds nothing, or a line is too long for an entry.
    """
    entries: dict[str, None] = {}
    for number, line in _lines(path):
        entry = " ".join((line.split("\t")[0] if path.suffix == ".tsv" else line).split())
        if not entry or len(entry) > _MOST_CHARACTERS:
            found = f"an entry of {len(entry):,} characters" if entry else "an empty first column"
            raise DataError(
                f"{path}, line {number}: {found} ({_shown(line)})",
                allowed=f"one phrase or entity a line, of 1 to {_MOST_CHARACTERS} characters",
                todo="Check that the file is a lexicon.",
            )
        entries[entry] = None
    return list(entries)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that hold something, with their numbers from 1."""
    try:
        data = path.expanduser().read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8", todo="Save the word list as UTF-8.") from error
    text = unicodedata.normalize("NFC", text)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"the word list {path} is empty", allowed="one word a line")
    return lines


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"cannot read the word list {path}: {error.strerror}", todo="Check the path.")


def _shown(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 40 else line[:40] + "...")
