"""Recipes by name: every file in `systems` is found by itself; a recipe can also be a JSON file."""

import functools
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from maskwright.core.errors import RecipeError, unknown_name
from maskwright.core.files import read_json
from maskwright.core.spec import override, parse_overrides, validate
from maskwright.recipes import systems
from maskwright.recipes.recipe import Recipe


def names() -> tuple[str, ...]:
    """List the names of all recipes: systems in alphabetical order, sizes in the order of their files."""
    return tuple(_recipes())


def get(name: str) -> Recipe:
    """Return the recipe of that name, as published.

    Raises:
        RecipeError: If there is none; the nearest name is suggested.
    """
    if (recipe := _recipes().get(name)) is not None:
        return recipe
    if sizes := [known for known in names() if known.startswith(f"{name}/")]:
        raise RecipeError(f"recipe {name!r} needs a size", allowed=", ".join(sizes))
    problem, allowed, todo = unknown_name("recipe", name, names())
    raise RecipeError(problem, allowed=f"{allowed}; or a .json file", todo=todo)


def resolve(name_or_file: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return a recipe by name or from a JSON file, with fields overridden.

    Args:
        name_or_file: A name of the catalogue, the path of a JSON file, or a run's folder, which holds one
            (`recipe.json`). A name wins over a file.
        overrides: Texts `field.path=value`, as `--set` takes them.

    Raises:
        RecipeError: If there is no such recipe, the file does not fit, or an override is not allowed.
    """
    file = None if name_or_file in _recipes() else _file(Path(name_or_file).expanduser())
    recipe = get(name_or_file) if file is None else _read(file)
    return override(recipe, parse_overrides(overrides)) if overrides else recipe


def _file(path: Path) -> Path | None:
    """Where the recipe is if `path` is one on disk, or clearly meant to be."""
    if (path / "recipe.json").is_file():
        return path / "recipe.json"
    return path if path.suffix == ".json" or path.is_file() else None


def _read(path: Path) -> Recipe:
    try:
        data = read_json(path)
    except OSError as error:
        raise RecipeError(
            f"cannot read the recipe file {str(path)!r}: {error.strerror}",
            todo="Check the path, or run `maskwright recipes` for the names that need no file.",
        ) from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RecipeError(
            f"the recipe file {str(path)!r} is not JSON: {where}: {error.msg}",
            todo="Begin with `maskwright recipes show NAME --json > FILE`.",
        ) from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"the recipe file {str(path)!r} is not UTF-8 text") from error
    return validate(Recipe, data, source=str(path))


@functools.cache
def _recipes() -> Mapping[str, Recipe]:
    found: dict[str, Recipe] = {}
    for module in sorted(pkgutil.iter_modules(systems.__path__), key=lambda module: module.name):
        for recipe in importlib.import_module(f"{systems.__name__}.{module.name}").recipes():
            if recipe.name in found:
                raise RuntimeError(f"two recipes are called {recipe.name!r}; the second is in {module.name}.py")
            found[recipe.name] = recipe
    return MappingProxyType(found)
