"""Options that several commands share."""

import re
from typing import Annotated, Literal

import typer

CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        help="Files, directories, globs, URLs (s3://...), `docstrings`, or Hugging Face dataset names; `PATH:WEIGHT` "
        "to mix.",
        show_default=False,
    ),
]
SetOfRecipesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a field of all recipes, `masking.rate=0.3`, or of one, `LABEL:masking.rate=0.3`.",
        show_default=False,
    ),
]
CleanOption = Annotated[
    list[str] | None,
    typer.Option(
        "--clean",
        help="Override a field of the text cleaning, e.g. `deduplicate=none`; repeatable.",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
TrainingPrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(help="Precision of matrix multiplications: auto (bf16 on a GPU that supports it), fp32 or bf16."),
]
WorkersOption = Annotated[
    int | None, typer.Option(help="Processes that prepare text; default: one per core.", show_default=False)
]


def split_list(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]
