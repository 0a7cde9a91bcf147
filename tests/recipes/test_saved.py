"""Recipes and requests that earlier versions have saved are read with their meaning."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from maskwright.core.errors import RecipeError
from maskwright.core.storage.files import write_json
from maskwright.inference.fill_mask import never_saw_masks
from maskwright.recipes import catalog
from maskwright.recipes.saved import recipe_from_json
from maskwright.training.runs.run_directory import is_same_run


def saved_earlier(name: str) -> dict[str, Any]:
    """Return the JSON data of a recipe with its fields of earlier versions, removed and renamed."""
    data = catalog.get(name).model_dump(mode="json")
    data["masking"]["final_rate"] = None
    data["training"] |= {"first_batch_share": 1.0, "batch_ramp_share": 0.1}
    for choice in (data["training"]["optimizer"], data["replacement"], *data["objectives"]):
        for old, new in (
            ("weight_decay", "weight_decay_per_step"),
            ("max_stand_ins", "max_fallback_rate"),
            ("max_places", "max_tokens"),
        ):
            if new in choice:
                choice[old] = choice.pop(new)
    return data


@pytest.mark.parametrize("name", ["bert/tiny", "macbert/tiny", "modernbert/tiny", "maskwright/tiny", "spanbert/tiny"])
def test_a_recipe_of_an_earlier_version_is_read_unchanged(name: str, tmp_path: Path) -> None:
    data = saved_earlier(name)
    before = deepcopy(data)
    write_json(tmp_path / "recipe.json", data)
    assert catalog.resolve(str(tmp_path)) == catalog.get(name)
    assert recipe_from_json(data, "run.json") == catalog.get(name)
    assert data == before
    assert never_saw_masks(tmp_path) == (name == "macbert/tiny")


@pytest.mark.parametrize(("part", "name"), [("masking", "final_rate"), ("training", "first_batch_share")])
def test_a_removed_field_with_an_effect_is_refused_by_name(part: str, name: str) -> None:
    data = saved_earlier("bert/tiny")
    data[part][name] = 0.3
    with pytest.raises(RecipeError, match=rf"recipe\.json: {part}\.{name} is 0\.3.*removed"):
        recipe_from_json(data, "recipe.json")


def test_a_renamed_field_belongs_to_one_kind() -> None:
    assert catalog.get("bert/tiny").training.optimizer.kind == "adamw"
    data = catalog.get("bert/tiny").model_dump(mode="json")
    data["training"]["optimizer"]["weight_decay"] = 0.5
    assert recipe_from_json(data, "").training.optimizer.model_dump()["weight_decay"] == 0.5


@pytest.mark.parametrize(
    ("name", "path_before", "path"),
    [
        ("bert/tiny", "training.optimizer.weight_decay", "training.optimizer.weight_decay"),
        ("modernbert/tiny", "training.optimizer.weight_decay", "training.optimizer.weight_decay_per_step"),
        ("macbert/tiny", "replacement.max_stand_ins", "replacement.max_fallback_rate"),
        ("spanbert/tiny", "objectives.sbo.max_places", "objectives.sbo.max_tokens"),
    ],
)
def test_a_run_of_an_earlier_version_is_the_same_run(name: str, path_before: str, path: str) -> None:
    now = {"seed": 0, "recipe": catalog.get(name).model_dump(mode="json"), "set": [path, "words"]}
    before = {"seed": 0, "recipe": saved_earlier(name), "set": [path_before, "words"]}
    assert is_same_run({"request": before}, now)
    assert is_same_run({"request": now}, now)
    assert not is_same_run({"request": {**before, "seed": 1}}, now)
    assert not is_same_run({"request": {**before, "set": []}}, now)


@pytest.mark.parametrize("kind", [["adamw"], {}, None, 3])
def test_kinds_that_are_no_names_are_recipe_errors(kind: object) -> None:
    data = catalog.get("bert/tiny").model_dump(mode="json")
    for choice in (data["replacement"], data["training"]["optimizer"], *data["objectives"]):
        choice["kind"] = kind
    with pytest.raises(RecipeError):
        recipe_from_json(data, "recipe.json")
