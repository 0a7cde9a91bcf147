"""Recipes: one frozen value each; `systems` has one file per system, annotated with its paper.

`catalog` finds recipes by name, `table` formats and compares them, `sizing` counts parameters, FLOPs and memory. The
functions here are the subcommands of `maskwright recipes`; a recipe is a name, a JSON file or a run directory.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from maskwright.recipes.recipe import Recipe
    from maskwright.recipes.sizing import Sizes
    from maskwright.recipes.table import FieldDifference

DEFAULT_RECIPE = "maskwright/mini"
"""Of `pretrain` and `prepare`; chosen by a comparison with bert/mini (LOG.md, 2026-11-27)."""


def names() -> tuple[str, ...]:
    """List the names of all recipes."""
    from maskwright.recipes.catalog import names

    return names()


def show(name: str, *, set: Sequence[str] = ()) -> "Recipe":
    """Return a recipe.

    Args:
        name: Name of a recipe, path of its JSON file, or a run directory.
        set: Override a field of the recipe, e.g. `masking.rate=0.3`.
    """
    from maskwright.recipes.catalog import resolve

    return resolve(name, set)


def diff(first: str, second: str, *, set: Sequence[str] = (), all: bool = False) -> "list[FieldDifference]":
    """Compare two recipes.

    Args:
        first: Name of a recipe, path of its JSON file, or a run directory.
        second: Name of the recipe to compare with it, path of its JSON file, or a run directory.
        set: Override a field of the second recipe.
        all: Include equal settings.
    """
    from maskwright.recipes.table import diff

    return diff(show(first), show(second, set=set), all)


@overload
def size(name: str, second: None = None, *, set: Sequence[str] = ()) -> "Sizes": ...


@overload
def size(name: str, second: str, *, set: Sequence[str] = ()) -> "tuple[Sizes, Sizes]": ...


def size(name: str, second: str | None = None, *, set: Sequence[str] = ()) -> "Sizes | tuple[Sizes, Sizes]":
    """Count the parameters, FLOPs and memory of a recipe, or of two.

    Args:
        name: Name of a recipe, path of its JSON file, or a run directory.
        second: A recipe to set beside it, with ratios.
        set: Override a field of the recipe; of the second if there are two.
    """
    from maskwright.recipes.sizing import sizes

    if second is None:
        return sizes(show(name, set=set))
    return sizes(show(name)), sizes(show(second, set=set))
