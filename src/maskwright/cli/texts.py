"""Shared by the commands that use a model: input texts, loading and warnings."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from maskwright.checkpoints.location import check_folder
from maskwright.cli import output
from maskwright.cli.options import Arguments

if TYPE_CHECKING:
    from maskwright.inference.model import Model


def load_for_use(arguments: Arguments) -> "tuple[Model, list[str], Arguments]":
    """Return the model, the texts (of the command line, then of the file), and the arguments that are left.

    Prints warnings and the column that is read, and configures the process's memory allocator as in training.
    """
    from maskwright.inference.texts import gather

    remaining = dict(arguments)
    model, texts, file, column, device, precision = (
        remaining.pop(name) for name in ("model", "texts", "file", "column", "device", "precision")
    )

    def note_column(name: str) -> None:
        output.note(f"texts from column {name!r} of {file}")

    texts = gather(texts, file, column, note_column, out=remaining["out"])
    check_folder(model)  # A misspelled folder, before PyTorch is imported, which takes seconds.
    from maskwright.inference.model import load
    from maskwright.training.ranks.allocator import keep_freed_memory

    keep_freed_memory()
    with print_warnings():
        return load(model, device=device, precision=precision), texts, remaining


@contextmanager
def print_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Print Python warnings of the block as lines, without file names and source; yield the list of them."""
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        try:
            yield caught
        finally:
            for warning in caught:
                output.warn(str(warning.message))
