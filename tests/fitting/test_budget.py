import pytest

from maskwright.core.errors import RecipeError
from maskwright.fitting.budget import Budget, Spent


def test_budget_of_nothing_is_none() -> None:
    assert Budget.of() is None


@pytest.mark.parametrize(
    ("amounts", "unit", "amount"),
    [
        ({"steps": 10}, "steps", 10),
        ({"minutes": 2}, "seconds", 120),
        ({"hours": 0.5}, "seconds", 1800),
        ({"tokens": 1e6}, "tokens", 1e6),
        ({"flops": 1e12}, "flops", 1e12),
    ],
)
def test_budget_of_one_argument_has_its_unit(amounts: dict[str, float], unit: str, amount: float) -> None:
    budget = Budget.of(**amounts)
    assert budget == Budget(unit, amount)


@pytest.mark.parametrize("amount", [0, -1, float("inf"), float("nan")])
def test_budget_of_nothing_to_spend_is_refused(amount: float) -> None:
    with pytest.raises(RecipeError, match="has no training step"):
        Budget.of(minutes=amount)


def test_two_budgets_are_refused() -> None:
    with pytest.raises(RecipeError, match="--steps, --minutes"):
        Budget.of(steps=3, minutes=1)


def test_progress_counts_its_own_unit_and_ends_at_one() -> None:
    spent = Spent(steps=5, tokens=50, seconds=30.0, flops=1e9)
    assert Budget("steps", 10).progress(spent) == 0.5
    assert Budget("tokens", 200).progress(spent) == 0.25
    assert Budget("seconds", 120).progress(spent) == 0.25
    assert Budget("flops", 1e8).progress(spent) == 1.0
