"""Recipes in files of this version or an earlier one."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.spec import validate
from maskwright.core.storage.files import read_json
from maskwright.recipes.recipe import Recipe

_RENAMED = {
    "stable_adamw": ("weight_decay", "weight_decay_per_step"),
    "similar_word": ("max_stand_ins", "max_fallback_rate"),
    "sbo": ("max_places", "max_tokens"),
}
"""By kind of a choice: the field that an earlier version named otherwise, and its name in this version."""

_REMOVED = (("masking", "final_rate", None), ("training", "first_batch_share", 1))
"""Part, name and value without effect of fields that an earlier version had."""


def read_recipe(file: Path) -> Recipe:
    """Read a recipe file; raises RecipeError if it is not valid."""
    return recipe_from_json(read_json(file), str(file))


def recipe_from_json(data: Any, source: str) -> Recipe:
    """Build a recipe from its JSON data, where retired fields are renamed or left out; `source` is named in errors.

    Raises RecipeError if the data is not valid or a removed field has an effect.
    """
    data = deepcopy(data)
    for part, name, unused in _REMOVED:
        if (value := _part(data, part).pop(name, unused)) != unused:
            raise RecipeError(
                f"{source}: {part}.{name} is {value!r}, but this field was removed",
                allowed=json.dumps(unused),
                hint=f"Use the version of maskwright that wrote it, or a recipe without {part}.{name}.",
            )
    _part(data, "training").pop("batch_ramp_share", None)  # It had an effect only with `first_batch_share`.
    for choice, old, new in _renamed(data):
        if old in choice and new not in choice:
            choice[new] = choice.pop(old)
    return validate(Recipe, data, source)


def _renamed(data: Any) -> list[tuple[dict[str, Any], str, str]]:
    """Return the choices in a recipe's data of which a field was renamed, with its old and its new name."""
    objectives = data.get("objectives") if isinstance(data, dict) else None
    choices = [_part(data, "training", "optimizer"), _part(data, "replacement")]
    choices += map(_part, objectives if isinstance(objectives, list) else ())
    return [(choice, *names) for choice in choices for kind, names in _RENAMED.items() if choice.get("kind") == kind]


def _part(data: Any, *steps: str) -> dict[str, Any]:
    for step in steps:
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def updated_request(request: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the request in a run's record with the recipe, and the paths in `set`, as this version writes them."""
    recipe, paths = request.get("recipe"), request.get("set")
    if not isinstance(recipe, dict):
        return dict(request)
    updated = {**request, "recipe": recipe_from_json(recipe, source).model_dump(mode="json")}
    if isinstance(paths, list):
        names = {old: new for _, old, new in _renamed(recipe)}
        split = [str(path).rpartition(".") for path in paths]
        updated["set"] = sorted(f"{part}{dot}{names.get(name, name)}" for part, dot, name in split)
    return updated
