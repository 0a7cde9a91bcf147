"""Recipes in files of this version or an earlier one."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.spec import validate
from maskwright.core.storage.files import read_json
from maskwright.recipes.recipe import Recipe


@dataclass(frozen=True, slots=True)
class _RetiredField:
    """A field of earlier versions, with its new name; None if it was removed and null was its neutral value.

    `kind` is the member of a union that had the field; None for every member.
    """

    parent: str
    name: str
    new_name: str | None = None
    kind: str | None = None


_RETIRED = (
    _RetiredField("masking", "final_rate"),
    _RetiredField("training.optimizer", "weight_decay", "weight_decay_per_step", kind="stable_adamw"),
)


def read_recipe(file: Path) -> Recipe:
    """Read a recipe file; raises RecipeError if it is not valid."""
    return recipe_from_json(read_json(file), str(file))


def recipe_from_json(data: Any, source: str) -> Recipe:
    """Build a recipe from its JSON data, where retired fields are renamed or left out; `source` is named in errors.

    Raises RecipeError if the data is not valid or a removed field has an effect.
    """
    data = deepcopy(data)
    for field in _RETIRED:
        part = data
        for step in field.parent.split("."):
            part = part.get(step) if isinstance(part, dict) else None
        if not isinstance(part, dict) or field.name not in part or field.kind not in (None, part.get("kind")):
            continue
        if field.new_name is not None:
            if field.new_name not in part:
                part[field.new_name] = part.pop(field.name)
        elif (value := part.pop(field.name)) is not None:
            path = f"{field.parent}.{field.name}"
            raise RecipeError(
                f"{source}: {path} is {value!r}, but this field was removed",
                allowed="null",
                hint=f"Use the version of maskwright that wrote it, or a recipe without {path}.",
            )
    return validate(Recipe, data, source)


def updated_request(request: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the request in a run's record with the recipe as this version writes it."""
    if not isinstance(request.get("recipe"), dict):
        return dict(request)
    return {**request, "recipe": recipe_from_json(request["recipe"], source).model_dump(mode="json")}
