"""Held-out quality in words."""

import math

import pytest

from maskwright.training.steps.evaluation import Baseline, detection_line, health_line, restoration_line
from maskwright.training.steps.step import ObjectiveResult

BASELINE = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
"""Loss of a prediction that knows only that a tenth of the tokens is replaced."""


@pytest.mark.parametrize(
    ("loss", "details", "words"),
    [
        (BASELINE, {"replaced": 0.1, "recall": 0.0}, "detects nothing yet"),
        (1.5 * BASELINE, {"replaced": 0.1, "precision": 0.1, "recall": 0.5}, "no better than the baseline yet"),
        (0.9 * BASELINE, {"replaced": 0.1, "precision": 0.4, "recall": 0.1}, "has begun to detect"),
        (0.5 * BASELINE, {"replaced": 0.1, "precision": 0.8, "recall": 0.6}, "detects well"),
        (math.nan, {"replaced": 0.1, "recall": 0.0}, "lower the learning rate"),
        (0.01, {"replaced": 0.0}, "predicts every token correctly"),
    ],
)
def test_detection_line_names_the_stage_of_learning(loss: float, details: dict[str, float], words: str) -> None:
    assert words in detection_line(ObjectiveResult(loss, 0.9, 1000, details))


def test_detection_line_gives_the_numbers() -> None:
    line = detection_line(ObjectiveResult(0.2, 0.9, 1000, {"replaced": 0.1, "precision": 0.75, "recall": 0.25}))
    assert f"loss 0.200 (baseline {BASELINE:.3f}), recall 25.0%, precision 75.0%; 10.0% of the tokens" in line
    line = detection_line(ObjectiveResult(0.3, 0.9, 1000, {"replaced": 0.1, "recall": 0.0}))
    assert "precision undefined" in line
    assert line.endswith("predicts 'original' for every token")
    line = detection_line(ObjectiveResult(0.3, 0.9, 1000, {"replaced": 0.1, "precision": 0.2, "recall": 0.006}))
    assert line.endswith("predicts 'original' for almost every token")


def test_restoration_line_gives_the_numbers() -> None:
    line = restoration_line(ObjectiveResult(2.5, 0.95, 1000, {"replaced": 0.1, "restored": 0.25}))
    assert "loss of the original text 2.50, accuracy 95.0% (25.0% at replaced tokens); 10.0% of the" in line
    assert "at replaced tokens" not in restoration_line(ObjectiveResult(2.5, 0.95, 1000, {"replaced": 0.1}))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (10.2, "uniform"),
        (7.5, "not better than the unigram baseline"),
        (6.94, "not better than the unigram baseline"),  # 0.6 % worse than the baseline is not learned
        (6.8, "plateau"),
        (6.0, "begun"),
        (3.0, "uses context well"),
    ],
)
def test_health_line_names_the_stage_of_learning(loss: float, words: str) -> None:
    assert words in health_line(ObjectiveResult(loss, 0.1, 100), Baseline(6.9, 0.05), 8192)


def test_health_line_depends_on_the_accuracy_too() -> None:
    line = health_line(ObjectiveResult(7.10, 0.026, 1000), Baseline(7.30, 0.034), 8192)
    assert line.endswith("accuracy 2.6% (baseline 3.4%): not better than the unigram baseline in accuracy yet")
