"""The progress callback of long stages."""

from typing import Protocol


class Progress(Protocol):
    """A function that a long stage calls with its name and the units done, of a total (None if unknown).

    The name ends in the unit in parentheses: "scoring (tokens)".
    """

    def __call__(self, stage: str, done: int, total: int | None, /) -> None: ...


def no_progress(stage: str, done: int, total: int | None, /) -> None:
    """Do nothing: the default of every stage."""
