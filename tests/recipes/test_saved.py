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


def saved_earlier(name: str, **masking: Any) -> dict[str, Any]:
    """Return the JSON data of a recipe as it was before its retired fields were."""
    data = catalog.get(name).model_dump(mode="json")
    data["masking"] |= {"final_rate": None, **masking}
    optimizer = data["training"]["optimizer"]
    if optimizer["kind"] == "stable_adamw":
        optimizer["weight_decay"] = optimizer.pop("weight_decay_per_step")
    return data


@pytest.mark.parametrize("name", ["bert/tiny", "macbert/tiny", "modernbert/tiny", "maskwright/tiny"])
def test_a_recipe_of_an_earlier_version_is_read_unchanged(name: str, tmp_path: Path) -> None:
    data = saved_earlier(name)
    before = deepcopy(data)
    write_json(tmp_path / "recipe.json", data)
    assert catalog.resolve(str(tmp_path)) == catalog.get(name)
    assert recipe_from_json(data, "run.json") == catalog.get(name)
    assert data == before
    assert never_saw_masks(tmp_path) == (name == "macbert/tiny")


def test_a_removed_field_with_an_effect_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match=r"recipe\.json: masking\.final_rate is 0\.3.*removed"):
        recipe_from_json(saved_earlier("bert/tiny", final_rate=0.3), "recipe.json")


def test_a_renamed_field_belongs_to_one_kind() -> None:
    assert catalog.get("bert/tiny").training.optimizer.kind == "adamw"
    data = catalog.get("bert/tiny").model_dump(mode="json")
    data["training"]["optimizer"]["weight_decay"] = 0.5
    assert recipe_from_json(data, "").training.optimizer.model_dump()["weight_decay"] == 0.5


def test_a_run_of_an_earlier_version_is_the_same_run() -> None:
    now = {"seed": 0, "recipe": catalog.get("modernbert/tiny").model_dump(mode="json")}
    before = {"seed": 0, "recipe": saved_earlier("modernbert/tiny")}
    assert is_same_run({"request": before}, now)
    assert not is_same_run({"request": {**before, "seed": 1}}, now)
