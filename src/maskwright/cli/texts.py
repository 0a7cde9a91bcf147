"""Shared by the commands that use a model: options, input texts, loading and warnings."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from maskwright.cli import output

if TYPE_CHECKING:
    from maskwright.inference.model import Model
    from maskwright.inference.precision import Precision

MODEL_HELP = "A run directory, or a Hugging Face model directory or hub name."

ModelArgument = Annotated[str, typer.Argument(help=MODEL_HELP)]
TextsArgument = Annotated[list[str] | None, typer.Argument(help="Texts.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        help="A file with one text per line, or a CSV, TSV, JSON Lines or Parquet file; `-` for standard input."
    ),
]
ColumnOption = Annotated[
    str | None, typer.Option(help="Column of the texts in --file. Default: text, content, or the only column of texts.")
]
LinesOption = Annotated[Path | None, typer.Option(help="Write the results to this .jsonl file, one line per text.")]
PrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16", "int8"],
    typer.Option(
        help="Precision of matrix multiplications: fp32, bf16, int8 (faster, less exact), or auto (bf16 on a GPU that "
        "supports it, else fp32)."
    ),
]

PoolingOption = Annotated[
    Literal["mean", "first"] | None,
    typer.Option(
        help="mean (of a text's tokens) or first (the [CLS] token). Default: that of a sentence-transformers folder, "
        "else mean."
    ),
]
NormalizeOption = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        help="Scale each vector to length 1. Default: as a sentence-transformers folder does, else not.",
    ),
]


def gather(texts: Sequence[str] | None, file: Path | None, column: str | None = None) -> list[str]:
    """Return the texts of the command line, then those of the file; the column that is read is printed."""
    from maskwright.inference.texts import gather

    return gather(texts or (), file, column, lambda name: output.note(f"texts from column {name!r} of {file}"))


def check_model(model: str) -> None:
    """Raise ConversionError for a misspelled model folder, before PyTorch is imported, which takes seconds."""
    from maskwright.huggingface.locating import check_folder

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
        yield
    for warning in caught:
        output.warn(str(warning.message))
