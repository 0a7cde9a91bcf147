"""Numbers for texts: labels refused, numbers divided for learning and multiplied back, measured as they were."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from text_examples import a_batch, labeled, scored

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import Label
from maskwright.finetuning.tasks import Regression


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["high"], "line 0: its label 'high' is not a number"),
        ([float("nan")], "line 0: its label nan is not a number"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_example(
    labels: list[Label | None], message: str, tokenizers: dict[str, Tokenizer]
) -> None:
    task = Regression()
    with pytest.raises(DataError, match=message):
        task.features(labeled(labels), tokenizers["wordpiece"], max_length=20, segments=True, training=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Regression(scale=0), "scale of a regression is 0"),
        (lambda: Regression(offset=math.inf), "offset of a regression is inf"),
        (lambda: Regression(metrics=("mean_absolute_error", "pearson")), "where lower is better"),
        (lambda: Regression(bounds=(5, 0)), "bounds of a regression"),
    ],
)
def test_tasks_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_regression_learns_divided_numbers_and_gives_back_whole_ones(tokenizers: dict[str, Tokenizer]) -> None:
    examples = labeled([0.0, 5.0, 2.5, "1.25"])
    task = Regression(scale=5, bounds=(0, 5))
    batch = a_batch(task, examples, tokenizers["wordpiece"])
    assert batch.labels is not None
    assert (batch.labels.tolist(), batch.labels.dtype) == ([0, 1, 0.5, 0.25], torch.float32)
    scores = np.array([[-0.1], [0.9], [0.5], [1.5]], dtype=np.float32)
    loss, count = task.loss(torch.tensor(scores), batch)
    assert (count, float(loss)) == (4, pytest.approx(0.1**2 + 0.1**2 + 0 + 1.25**2, abs=1e-6))
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    assert [each.value for each in predictions] == pytest.approx([0, 4.5, 2.5, 5], abs=1e-6)
    assert [each.score for each in predictions] == [None] * 4
    assert [each.details.get("unbounded") for each in predictions] == [
        pytest.approx(-0.5),
        None,
        None,
        pytest.approx(7.5),
    ]
    # What is measured is the output as it was.
    values = np.array([-0.5, 4.5, 2.5, 7.5])
    measured = task.measure(predictions, examples)
    assert list(measured) == ["r_squared", "pearson", "spearman", "mean_absolute_error"]
    assert measured["pearson"] == pytest.approx(np.corrcoef(values, [0, 5, 2.5, 1.25])[0, 1])
    assert measured["spearman"] == pytest.approx(np.corrcoef([0, 2, 1, 3], [0, 3, 2, 1])[0, 1])
