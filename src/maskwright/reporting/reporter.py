"""Receivers of the messages of a run and of the progress of its stages. Results never depend on them."""

import contextlib
from typing import Protocol

from maskwright.reporting.table import Table


class Progress(Protocol):
    """A function that a long stage calls with its name and the units done, of a total (None if unknown).

    The name ends in the unit in parentheses: "scoring (tokens)".
    """

    def __call__(self, stage: str, done: int, total: int | None, /) -> None: ...


def no_progress(stage: str, done: int, total: int | None, /) -> None:
    """Do nothing: the default of every stage."""


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """Receives the messages and progress of a run; this one ignores them."""

    def message(self, topic: str, text: str) -> None:
        """Print a message: a topic of one word and a sentence."""

    def table(self, topic: str, table: Table) -> None:
        """Print a small table."""

    def stage(self, name: str, done: int, total: int | None) -> None:
        """Show the progress of a preparation stage (also a `Progress`)."""

    def training(self, share: float, text: str) -> None:
        """Show the progress of training, as a share and a text."""

    def close(self) -> None:
        """Remove the progress line."""

    def __exit__(self, *_: object) -> None:
        self.close()
