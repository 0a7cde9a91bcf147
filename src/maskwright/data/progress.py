"""The progress callback of long stages."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then by a long stage; must return quickly. Any `(str, int, int | None)` function fits."""

    def __call__(self, stage: str, done: int, total: int | None, /) -> None:
        """Take note of progress.

        Args:
            stage: What is being done, in a few words: "cleaning", "tokenizing".
            done: Units done so far (bytes, blocks), ascending within a stage.
            total: Units there are in all; None where that is not known.
        """


def no_progress(stage: str, done: int, total: int | None, /) -> None:
    """Say nothing: the default of every stage."""
