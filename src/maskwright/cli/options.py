"""Options that several commands share."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from maskwright.cli.texts import MODEL_HELP

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
CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        help="Files, directories, globs, URLs (s3://...), `docstrings`, or Hugging Face dataset names; `PATH:WEIGHT` "
        "to mix."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Override a field of the recipe, e.g. `masking.rate=0.3`; repeatable."
    ),
]
SetOfRecipesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a field of all recipes, `masking.rate=0.3`, or of one, `LABEL:masking.rate=0.3`."
    ),
]
CleanOption = Annotated[
    list[str] | None,
    typer.Option("--clean", help="Override a field of the text cleaning, e.g. `deduplicate=none`; repeatable."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
TrainingPrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16"],
    typer.Option(help="Precision of matrix multiplications: auto (bf16 on a GPU that supports it), fp32 or bf16."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(help="Processes that prepare text; default: one per core (at most 16), or all of a cluster."),
]
EngineOption = Annotated[
    Literal["local", "ray"], typer.Option(help="Where text is prepared: processes of this machine, or a Ray cluster.")
]


def check_recipes(names: Iterable[str], overrides: Iterable[str] = ()) -> None:
    """Raise RecipeError for a recipe that there is not, before PyTorch is imported, which takes seconds."""
    from maskwright.recipes.catalog import resolve

    for name in names if "RANK" not in os.environ else ():  # The processes of torchrun print an error once, later.
        resolve(name, tuple(overrides))


def split_list(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]
