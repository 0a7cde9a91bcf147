"""Standard input as texts, one a line, decoded as files are."""

import codecs
import sys
from collections.abc import Sequence
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.evaluation.readers.loading import lines_of
from maskwright.text.encodings import guess_encoding, refuse_utf_16, undecodable

STANDARD_INPUT = "standard input"
_LOOKED_AT = 1 << 14


def is_standard_input(path: str | Path) -> bool:
    """Whether a file's name means standard input."""
    return str(path) == "-"


def read_standard_input() -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    """Read all of standard input.

    Returns:
        (number, text) of each line that is not blank, and what is to be said: how many lines are, and the encoding
        where it was guessed.

    Raises:
        DataError: If it is not UTF-8, and no encoding is recognised.
    """
    text, notes = _decoded(sys.stdin.buffer.read())
    lines = list(enumerate(lines_of(text), start=1))
    blank = [number for number, line in lines if not line.strip()]
    if blank:
        notes = (*notes, f"{_counted(blank)} blank and left out; keys are the numbers of lines")
    return [(number, line) for number, line in lines if line.strip()], notes


def _counted(lines: Sequence[int]) -> str:
    return f"line {lines[0]} is" if len(lines) == 1 else f"{len(lines):,} lines (the first: {lines[0]}) are"


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    refuse_utf_16(data[:2], STANDARD_INPUT)
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        before = data[max(0, error.start - _LOOKED_AT) : error.start]
        guess, codec = guess_encoding(before, data[error.start : error.start + _LOOKED_AT])
        line = data.count(b"\n", 0, error.start) + 1
        try:
            if codec:
                return data.decode(codec), (f"not UTF-8 (line {line}): {guess}, and is read as {codec}",)
        except UnicodeDecodeError:
            pass
        bad = undecodable(data, error, STANDARD_INPUT, line)
        raise DataError(f"{bad.place}: {bad.problem}", todo="Give it as UTF-8.") from error
