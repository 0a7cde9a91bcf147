"""Shared by the commands that use a model: input texts, loading and warnings."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from maskwright.cli import output

if TYPE_CHECKING:
    from maskwright.inference.model import Model
    from maskwright.inference.precision import Precision

MODEL_HELP = "A run directory, or a Hugging Face model directory or hub name."


def gather(texts: Sequence[str] | None, file: Path | None, column: str | None = None) -> list[str]:
    """Return the texts of the command line, then those of the file; the column that is read is printed."""
    from maskwright.inference.texts import gather

    return gather(texts or (), file, column, lambda name: output.note(f"texts from column {name!r} of {file}"))


def check_model(model: str) -> None:
    """Raise ConversionError for a misspelled model folder, before PyTorch is imported, which takes seconds."""
    from maskwright.checkpoints.location import check_folder

    check_folder(model)


def load_for_use(model: str, device: str, precision: "Precision") -> "Model":
    """Load a model, print warnings, and configure the process's memory allocator as in training."""
    check_model(model)
    from maskwright.inference.model import load
    from maskwright.training.allocator import keep_freed_memory

    keep_freed_memory()
    with print_warnings():
        return load(model, device=device, precision=precision)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print Python warnings of the block as lines, without file names and source."""
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        try:
            yield
        finally:
            for warning in caught:
                output.warn(str(warning.message))
