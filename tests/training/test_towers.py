"""Which objectives sit on which tower."""

import pytest

from maskwright.recipes.catalog import get
from maskwright.training.towers import objectives_by_tower


@pytest.mark.parametrize(
    ("name", "on_encoder", "on_generator"),
    [("bert/tiny", ["mlm", "nsp"], []), ("electra/tiny", ["rtd"], ["mlm"]), ("roberta/tiny", ["mlm"], [])],
)
def test_masked_tokens_are_the_generator_s_where_there_is_one(
    name: str, on_encoder: list[str], on_generator: list[str]
) -> None:
    recipe = get(name)
    towers = objectives_by_tower(recipe.objectives, generator=recipe.generator is not None)
    assert [[objective.kind for objective in tower] for tower in towers] == [on_encoder, on_generator]
    alone, none = objectives_by_tower(recipe.objectives, generator=False)
    assert (alone, none) == (tuple(recipe.objectives), ())
