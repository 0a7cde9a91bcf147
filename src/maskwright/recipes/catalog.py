"""Recipes by name, from the files in `systems`, or from JSON files."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from maskwright.core.errors import RecipeError, nearest, suggestion
from maskwright.core.spec import override, parse_overrides
from maskwright.recipes import systems
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.saved import read_recipe


def names() -> tuple[str, ...]:
    """List the names of all recipes: systems in alphabetical order, sizes in the order of their files."""
    return tuple(_recipes())


def get(name: str) -> Recipe:
    """Return a published recipe.

    Raises RecipeError if there is none with this name; the nearest name or the sizes of the system are listed.
    """
    if (recipe := _recipes().get(name)) is not None:
        return recipe
    sizes: dict[str, list[str]] = {}
    for known in names():
        sizes.setdefault(known.partition("/")[0], []).append(known)
    system, slash, size = name.partition("/")
    if system in sizes and not size:
        raise RecipeError(f"recipe {name!r} needs a size", allowed=", ".join(sizes[system]))
    hint = "`maskwright recipes` lists all recipes"
    if system in sizes:
        hint = suggestion(name, sizes[system], hint)
        raise RecipeError(f"system {system!r} has no size {size!r}", allowed=", ".join(sizes[system]), hint=hint)
    # A high cutoff: "bret" is a misspelled BERT, but "deberta" is another system. "bert-base-uncased" is a hub name.
    meant = nearest(system, sizes, cutoff=0.74)
    candidates = (f"{meant}/{size}", f"{meant}/base", name.removesuffix("-uncased").replace("-", "/", 1))
    nearest_name = next((each for each in candidates if each in names()), None)
    raise RecipeError(
        f"unknown system {system!r}" if slash else f"unknown recipe {name!r}",
        allowed=f"{', '.join(sizes)}, each with a size, such as bert/base; or a .json file",
        hint=f"Did you mean {nearest_name!r}?" if nearest_name else hint,
    )


def resolve(name_or_file: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return a recipe, with fields overridden.

    Args:
        name_or_file: A name of the catalog (it comes first), the path of a JSON file, or a run directory (it contains
            `recipe.json`).
        overrides: Texts `field.path=value`, as for `--set`.

    Raises RecipeError if there is no such recipe, or the file or an override is invalid.
    """
    file = None if name_or_file in _recipes() else _file(Path(name_or_file).expanduser())
    recipe = get(name_or_file) if file is None else _read(file)
    return override(recipe, parse_overrides(overrides)) if overrides else recipe


def _file(path: Path) -> Path | None:
    """Return the file if `path` exists or ends in .json."""
    if (path / "recipe.json").is_file():
        return path / "recipe.json"
    return path if path.suffix == ".json" or path.is_file() else None


def _read(path: Path) -> Recipe:
    try:
        return read_recipe(path)
    except FileNotFoundError as error:
        raise RecipeError(
            f"there is no recipe file {str(path)!r}",
            hint="Check the path, or run `maskwright recipes` for the names of recipes",
        ) from error


@functools.cache
def _recipes() -> Mapping[str, Recipe]:
    recipes_by_name: dict[str, Recipe] = {}
    for module in sorted(pkgutil.iter_modules(systems.__path__), key=lambda module: module.name):
        for recipe in importlib.import_module(f"{systems.__name__}.{module.name}").recipes():
            if recipe.name in recipes_by_name:
                raise RuntimeError(f"two recipes have the name {recipe.name!r}; the second is in {module.name}.py")
            recipes_by_name[recipe.name] = recipe
    return MappingProxyType(recipes_by_name)
