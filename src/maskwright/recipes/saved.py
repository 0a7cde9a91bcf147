"""Recipes in files of this version or an earlier one."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.spec import validate
from maskwright.core.storage.files import read_json
from maskwright.recipes.recipe import Recipe


def read_recipe(file: Path) -> Recipe:
    """Read a recipe file; raises RecipeError if it is not valid."""
    return recipe_from_json(read_json(file), str(file))


def recipe_from_json(data: Any, source: str) -> Recipe:
    """Build a recipe from its JSON data, where retired fields are renamed or left out; `source` is named in errors.

    Raises RecipeError if the data is not valid or a removed field has an effect.
    """
    data = deepcopy(data)
    masking, optimizer = _part(data, "masking"), _part(data, "training", "optimizer")
    if (rate := masking.pop("final_rate", None)) is not None:
        raise RecipeError(
            f"{source}: masking.final_rate is {rate!r}, but this field was removed",
            allowed="null",
            hint="Use the version of maskwright that wrote it, or a recipe without masking.final_rate.",
        )
    names = {"weight_decay", "weight_decay_per_step"} & optimizer.keys()
    if optimizer.get("kind") == "stable_adamw" and names == {"weight_decay"}:
        optimizer["weight_decay_per_step"] = optimizer.pop("weight_decay")
    return validate(Recipe, data, source)


def _part(data: Any, *steps: str) -> dict[str, Any]:
    for step in steps:
        data = data.get(step) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def updated_request(request: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the request in a run's record with the recipe as this version writes it."""
    if not isinstance(request.get("recipe"), dict):
        return dict(request)
    return {**request, "recipe": recipe_from_json(request["recipe"], source).model_dump(mode="json")}
