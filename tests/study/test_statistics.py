import numpy as np
import pytest
from scipy import stats

from maskwright.study.statistics import ALPHA, BETTER, NO_DIFFERENCE, NOT_TESTED, WORSE, differences, estimate, holm

BASE = {0: 0.50, 1: 0.52, 2: 0.49}


def test_identical_recipes_show_no_difference_and_a_crippled_one_is_worse() -> None:
    crippled = {seed: value - 0.3 + 0.001 * seed for seed, value in BASE.items()}
    actual = differences({"a": BASE, "same": dict(BASE), "crippled": crippled}, "a")
    assert {name: each.verdict for name, each in actual.items()} == {
        "a": "baseline",
        "same": NO_DIFFERENCE,
        "crippled": WORSE,
    }
    assert actual["same"].p == 1
    assert actual["crippled"].mean == pytest.approx(-0.299)
    assert differences({"a": BASE, "b": crippled}, "a", higher_is_better=False)["b"].verdict == BETTER


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_rate_of_false_differences_is_within_its_level(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    wrong = 0
    for _ in range(200):
        shared = draw.normal(0, 0.02, seeds)  # What a seed does to all recipes alike.
        values = {name: dict(enumerate(0.5 + shared + draw.normal(0, 0.01, seeds))) for name in "abcd"}
        wrong += any(each.verdict in (BETTER, WORSE) for each in differences(values, "a").values())
    # With a true rate of alpha, more than this happens in 1 of 100 such experiments.
    assert wrong <= stats.binom.ppf(0.99, 200, ALPHA)


def test_equal_differences_are_not_taken_for_certainty() -> None:
    shifted = {seed: value + 0.25 for seed, value in BASE.items()}
    actual = differences({"a": BASE, "b": shifted}, "a")["b"]
    assert (actual.p, actual.verdict) == (0.25, NO_DIFFERENCE)


def test_seeds_are_paired_and_one_seed_is_not_tested() -> None:
    actual = differences({"a": BASE, "b": {2: 0.6, 7: 0.1}}, "a")["b"]
    assert (actual.seeds, actual.verdict, actual.p) == (1, NOT_TESTED, None)
    assert actual.mean == pytest.approx(0.11)


def test_p_values_are_those_of_a_paired_t_test_with_holms_adjustment() -> None:
    other, third = {0: 0.55, 1: 0.56, 2: 0.55}, {0: 0.51, 1: 0.50, 2: 0.50}
    actual = differences({"a": BASE, "b": other, "c": third}, "a")
    expected = [stats.ttest_rel(list(each.values()), list(BASE.values())).pvalue for each in (other, third)]
    assert [actual["b"].p, actual["c"].p] == pytest.approx(expected)
    assert actual["b"].p_holm == pytest.approx(2 * expected[0])
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])  # Worked by hand.
    assert holm([]) == []


def test_the_interval_covers_examples_where_they_vary_more_than_seeds() -> None:
    seeds = estimate([0.4, 0.5, 0.6])
    assert (seeds.mean, seeds.sd, seeds.over) == (pytest.approx(0.5), pytest.approx(0.1), "seeds")
    assert 0.4 <= seeds.low < 0.5 < seeds.high <= 0.6
    groups = np.random.default_rng(0).integers(0, 2, (2, 50)).astype(float)
    examples = estimate([0.5, 0.5], groups.tolist())
    assert examples.over == "examples"
    assert examples.low < 0.5
    alone = estimate([0.5])
    assert (alone.sd, alone.low, alone.over) == (None, None, "")
