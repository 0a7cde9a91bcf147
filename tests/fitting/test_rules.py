"""Rules: which fields they change, and what is kept."""

import pytest

from maskwright.core.errors import RecipeError
from maskwright.fitting.rules import Choice, Rule, apply_rules, reset_fields, round_digits
from maskwright.recipes.catalog import get, resolve

RULES: tuple[Rule[int], ...] = (
    Rule("training.steps", lambda steps: steps, lambda steps: f"{steps} steps"),
    Rule("training.warmup_steps", 0, "few steps", lambda steps: steps < 100),
    Rule("objectives.*.weight", 2.0, "twice"),
)


def test_rules_that_apply_change_fields_and_give_reasons() -> None:
    recipe, choices = apply_rules(get("electra/tiny"), RULES, 50)
    assert (recipe.training.steps, recipe.training.warmup_steps) == (50, 0)
    assert [each.weight for each in recipe.objectives] == [2.0, 2.0]
    published = get("electra/tiny").training
    assert choices[:2] == (
        Choice("training.steps", published.steps, 50, "50 steps"),
        Choice("training.warmup_steps", published.warmup_steps, 0, "few steps"),
    )
    assert [each.field for each in choices[2:]] == ["objectives.mlm.weight", "objectives.rtd.weight"]


def test_fixed_and_equal_values_are_no_choices() -> None:
    fixed = {"training", "objectives.mlm.weight"}
    recipe, choices = apply_rules(get("electra/tiny"), RULES, 50, fixed, prefix="recipe.")
    assert recipe.training == get("electra/tiny").training
    assert [each.field for each in choices] == ["recipe.objectives.rtd.weight"]
    assert apply_rules(recipe, RULES, 50, fixed) == (recipe, ())


def test_values_that_do_not_fit_together_are_an_error_of_the_recipe() -> None:
    with pytest.raises(RecipeError, match="warmup_steps 10000 is more than steps 500"):
        apply_rules(get("bert/tiny"), RULES, 500)


def test_numbers_are_rounded_to_significant_digits() -> None:
    assert [round_digits(0.01234), round_digits(2160.2, 3)] == [0.012, 2160]


@pytest.mark.parametrize(
    ("name", "setting", "field"),
    [
        ("modernbert/tiny", "training.schedule=linear", "training.decay_share"),
        ("modernbert/tiny", "encoder.norm_placement=post", "encoder.first_attention_norm"),
        ("roberta/tiny", "encoder.positions=rotary", "encoder.position_offset"),
    ],
)
def test_published_fields_without_effect_are_reset_and_listed(name: str, setting: str, field: str) -> None:
    changed, fixed = resolve(name, [setting]), {setting.partition("=")[0]}
    (choice,) = reset_fields(get(name), changed, fixed)
    assert choice.field == field
    assert resolve(name, [setting, f"{field}={str(choice.chosen).lower()}"]) == changed
    assert reset_fields(get(name), get(name), fixed) == ()
    with pytest.raises(RecipeError, match=field.rpartition(".")[2]):  # The user's value is not reset.
        resolve(name, [setting, f"{field}={str(choice.published).lower()}"])
