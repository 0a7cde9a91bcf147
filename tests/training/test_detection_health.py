"""The line that says how a detector of replaced tokens stands."""

import math

import pytest

from maskwright.training.evaluation import Measured, detection_line

BLIND = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
"""What it costs to know only that a tenth of the tokens is replaced."""


@pytest.mark.parametrize(
    ("loss", "details", "words"),
    [
        (BLIND, {"replaced": 0.1, "recall": 0.0}, "detects nothing yet: it calls every token original"),
        (1.5 * BLIND, {"replaced": 0.1, "precision": 0.1, "recall": 0.5}, "no better yet than knowing how many"),
        (0.9 * BLIND, {"replaced": 0.1, "precision": 0.4, "recall": 0.1}, "has begun to detect"),
        (0.5 * BLIND, {"replaced": 0.1, "precision": 0.8, "recall": 0.6}, "detects well"),
        (math.nan, {"replaced": 0.1, "recall": 0.0}, "lower the learning rate"),
        (0.01, {"replaced": 0.0}, "guesses every token right"),
    ],
)
def test_detection_line_tells_the_stage_of_learning(loss: float, details: dict[str, float], words: str) -> None:
    assert words in detection_line(Measured(loss, 0.9, 1000, details))


def test_detection_line_gives_the_numbers() -> None:
    line = detection_line(Measured(0.2, 0.9, 1000, {"replaced": 0.1, "precision": 0.75, "recall": 0.25}))
    assert "replaced 10.0% of the tokens, 25.0% of these are found, 75.0% of what it names is right" in line
    assert f"0.200 nats against {BLIND:.3f}" in line
    assert "it names none" in detection_line(Measured(0.3, 0.9, 1000, {"replaced": 0.1, "recall": 0.0}))
