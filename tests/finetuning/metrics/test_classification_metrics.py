"""Measures of classes and numbers, on cases worked by hand."""

import math

import pytest

from maskwright.finetuning.metrics.scores import (
    accuracy,
    binary_f1,
    macro_f1,
    matthews,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    r_squared,
    spearman,
)

# 3 paraphrases found, 1 missed, 2 called so that are none, 4 rightly not.
GOLD = ["1"] * 4 + ["0"] * 6
PREDICTED = ["1", "1", "1", "0", "1", "1", "0", "0", "0", "0"]


def test_measures_of_two_classes_are_those_of_the_four_counts() -> None:
    assert accuracy(GOLD, PREDICTED) == pytest.approx(7 / 10)
    # Precision 3/5, recall 3/4.
    assert binary_f1(GOLD, PREDICTED, positive="1") == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    # Precision 4/5, recall 4/6.
    assert binary_f1(GOLD, PREDICTED, positive="0") == pytest.approx(2 * 4 / (2 * 4 + 1 + 2))
    assert macro_f1(GOLD, PREDICTED, labels=["0", "1"]) == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert matthews(GOLD, PREDICTED) == pytest.approx((3 * 4 - 2 * 1) / math.sqrt(5 * 4 * 6 * 5))


def test_correlations_are_those_worked_by_hand() -> None:
    gold, predicted = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]
    # Both are permutations of 1..4: 1 - 6 * (1 + 1) / (4 * 15).
    assert spearman(gold, predicted) == pytest.approx(0.8)
    assert pearson([0.0, 1.0, 2.0], [0.0, 1.0, 5.0]) == pytest.approx(5 / math.sqrt(2 * 14))
    # Equal numbers share their mean rank: 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman([1, 2, 3], [7, 7, 9]) == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert r_squared([0.0, 1.0, 2.0], [0.0, 1.0, 1.5]) == pytest.approx(1 - 0.25 / 2)
    assert r_squared([0.0, 1.0, 2.0], [1.0] * 3) == r_squared([1.0] * 3, [0.0, 1.0, 2.0]) == 0
    assert mean_absolute_error([0.0, 1.0, 2.0], [1.0, 1.0, -5.0]) == pytest.approx(8 / 3)


def test_correlation_with_a_constant_is_zero() -> None:
    for correlation in (pearson, spearman):
        assert correlation([1.0, 2.0, 3.0], [2.5, 2.5, 2.5]) == 0
        assert correlation([1.0, 1.0], [1.0, 2.0]) == 0


def test_multi_label_scores_are_those_worked_by_hand() -> None:
    scores = multi_label_scores([["a", "b"], ["a"], [], ["c"]], [["a"], ["a", "c"], [], ["b"]], labels="abcd")
    assert scores == {
        # 2 right of 4 that hold and 4 predicted.
        "micro_f1": pytest.approx(2 * 2 / (4 + 4)),
        "macro_f1": pytest.approx(1 / 4),
        "subset_accuracy": pytest.approx(1 / 4),
    }
