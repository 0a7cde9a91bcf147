"""Options that several commands share."""

import os
import re
from collections.abc import Iterable
from typing import Annotated, Literal

import typer

CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        help="Files, directories, globs, `docstrings`, or Hugging Face dataset names; `PATH:WEIGHT` to mix."
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
WorkersOption = Annotated[int | None, typer.Option(help="Processes that prepare text; default: one per core.")]


def check_recipes(names: Iterable[str], overrides: Iterable[str] = ()) -> None:
    """Raise RecipeError for a recipe that there is not, before PyTorch is imported, which takes seconds."""
    from maskwright.recipes.catalog import resolve

    for name in names if "RANK" not in os.environ else ():  # The processes of torchrun print an error once, later.
        resolve(name, tuple(overrides))


def split_list(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]
