"""Measures of classes and numbers, on cases worked by hand."""

import math

import pytest

from maskwright.finetuning.metrics.scores import class_score, multi_label_scores, number_scores

# 3 paraphrases found, 1 missed, 2 called so that are none, 4 rightly not.
GOLD = ["1"] * 4 + ["0"] * 6
PREDICTED = ["1", "1", "1", "0", "1", "1", "0", "0", "0", "0"]


def test_measures_of_two_classes_are_those_of_the_four_counts():
    expected = {
        "accuracy": 7 / 10,
        "f1": 2 * 3 / (2 * 3 + 2 + 1),  # precision 3/5, recall 3/4
        "macro_f1": (6 / 9 + 8 / 11) / 2,
        "matthews": (3 * 4 - 2 * 1) / math.sqrt(5 * 4 * 6 * 5),
    }
    for metric, score in expected.items():
        assert class_score(metric, GOLD, PREDICTED, labels=["0", "1"], positive="1") == pytest.approx(score)
    # Precision 4/5, recall 4/6.
    assert class_score("f1", GOLD, PREDICTED, labels=["0", "1"], positive="0") == pytest.approx(2 * 4 / (2 * 4 + 1 + 2))


def test_scores_of_numbers_are_those_worked_by_hand():
    # Both are permutations of 1..4: 1 - 6 * (1 + 1) / (4 * 15).
    assert number_scores([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0])["spearman"] == pytest.approx(0.8)
    assert number_scores([0.0, 1.0, 2.0], [0.0, 1.0, 5.0])["pearson"] == pytest.approx(5 / math.sqrt(2 * 14))
    # Equal numbers share their mean rank: 1.5, 1.5, 3 against 1, 2, 3.
    assert number_scores([1, 2, 3], [7, 7, 9])["spearman"] == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert number_scores([0.0, 1.0, 2.0], [0.0, 1.0, 1.5])["r_squared"] == pytest.approx(1 - 0.25 / 2)
    assert number_scores([0.0, 1.0, 2.0], [1.0, 1.0, -5.0])["mean_absolute_error"] == pytest.approx(8 / 3)


@pytest.mark.parametrize("sides", [([1.0, 2.0, 3.0], [2.0] * 3), ([1.0, 1.0], [1.0, 2.0])])
def test_scores_of_a_constant_are_zero(sides):
    scores = number_scores(*sides)
    assert [scores[name] for name in ("r_squared", "pearson", "spearman")] == [0, 0, 0]


def test_multi_label_scores_are_those_worked_by_hand():
    scores = multi_label_scores([["a", "b"], ["a"], [], ["c"]], [["a"], ["a", "c"], [], ["b"]], labels="abcd")
    assert scores == {
        # 2 right of 4 that hold and 4 predicted.
        "micro_f1": pytest.approx(2 * 2 / (4 + 4)),
        "macro_f1": pytest.approx(1 / 4),
        "subset_accuracy": pytest.approx(1 / 4),
    }
