"""Standard input as texts, one a line, decoded as files are."""

import sys
from collections.abc import Sequence
from pathlib import Path

from maskwright.finetuning.readers.files import decode, lines_of

STANDARD_INPUT = "standard input"


def is_standard_input(path: str | Path) -> bool:
    """Whether a file's name means standard input."""
    return str(path) == "-"


def read_standard_input(encoding: str | None = None) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    """Read all of standard input.

    Args:
        encoding: What it is written in; None guesses, and says so.

    Returns:
        (number, text) of each line that is not blank, and what is to be said: how many lines are, and the encoding
        where it was guessed.

    Raises:
        DataError: If it is not UTF-8, and no encoding is recognised.
    """
    text, notes = decode(sys.stdin.buffer.read(), STANDARD_INPUT, encoding)
    lines = list(enumerate(lines_of(text), start=1))
    blank = [number for number, line in lines if not line.strip()]
    if blank:
        notes = (*notes, f"{_counted(blank)} blank and left out; keys are the numbers of lines")
    return [(number, line) for number, line in lines if line.strip()], notes


def _counted(lines: Sequence[int]) -> str:
    return f"line {lines[0]} is" if len(lines) == 1 else f"{len(lines):,} lines (the first: {lines[0]}) are"
