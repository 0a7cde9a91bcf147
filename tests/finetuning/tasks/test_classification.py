"""Classes of texts: labels found and refused, scores as a plain oracle has them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from text_examples import a_batch, labeled, scored

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import Label
from maskwright.finetuning.tasks import Classification


def test_classes_are_found_and_sorted_as_numbers_where_they_are_numbers() -> None:
    assert Classification.for_examples(labeled(["10", "9", None, "-1", "9"])).labels == ("-1", "9", "10")
    assert Classification.for_examples(labeled(["b", "10", "a"])).labels == ("10", "a", "b")


def test_training_leaves_out_examples_without_a_label(tokenizers: dict[str, Tokenizer]) -> None:
    examples = labeled(["yes", None, "no", "yes"])
    task = Classification.for_examples(examples)
    features = task.features(examples, tokenizers["wordpiece"], max_length=20, segments=True, training=True)
    assert features.examples.tolist() == [0, 2, 3]
    assert features.units.tolist() == [0, 1, 2]
    assert features.labels is not None
    assert (features.labels.tolist(), features.labels.dtype) == ([1, 0, 1], np.int64)
    scoring = task.features(examples, tokenizers["wordpiece"], max_length=20, segments=True, training=False)
    assert scoring.examples.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["yes", "nope"], "line 1: unknown label 'nope'.*Did you mean 'no'"),
        ([None, None], "none of the 2 examples has a label"),
        (["yes", 1.5], r"line 1: its label 1\.5 is not the name of a class"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_example(
    labels: list[Label | None], message: str, tokenizers: dict[str, Tokenizer]
) -> None:
    task = Classification(labels=("yes", "no"))
    with pytest.raises(DataError, match=message):
        task.features(labeled(labels), tokenizers["wordpiece"], max_length=20, segments=True, training=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classification(labels=("a",)), "only 'a'"),
        (lambda: Classification(labels=("a", "b", "a")), "'a' is listed twice"),
        (lambda: Classification(labels=("a", "b"), metrics=("acuracy",)), "Did you mean 'accuracy'"),
        (lambda: Classification(labels=("a", "b"), metrics=()), "needs a metric"),
        (lambda: Classification(labels=("a", "b", "c"), metrics=("f1",)), "'f1' is of one class"),
        (lambda: Classification(labels=("a", "b"), positive="c"), "positive class: unknown label 'c'"),
        (lambda: Classification.for_examples(labeled([1.0, 2.0])), "Choose the task 'regression'"),
    ],
)
def test_tasks_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_classification_scores_equal_a_plain_oracle(tokenizers: dict[str, Tokenizer]) -> None:
    labels = ["b", "a", "c", "a", "b", "b", "a"]
    examples, task = (
        labeled(labels),
        Classification(labels=("a", "b", "c"), metrics=("accuracy", "macro_f1", "matthews")),
    )
    scores = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32) * 3
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    right = 0
    for number, prediction in enumerate(predictions):
        powers = [math.exp(score) for score in scores[number].tolist()]
        probabilities = dict(zip("abc", (power / sum(powers) for power in powers), strict=True))
        best = max(probabilities, key=lambda label: probabilities[label])
        assert (prediction.key, prediction.value) == (f"line {number}", best)
        assert prediction.score == pytest.approx(probabilities[best], abs=1e-9)
        assert prediction.details["probabilities"] == pytest.approx(probabilities, abs=1e-9)
        right += best == labels[number]
    measured = task.measure(predictions, examples)
    assert list(measured) == ["accuracy", "macro_f1", "matthews"]
    assert measured["accuracy"] == pytest.approx(right / 7)
    loss, count = task.loss(torch.tensor(scores), a_batch(task, examples, tokenizers["wordpiece"]))
    surprise = [-math.log(p.details["probabilities"][label]) for p, label in zip(predictions, labels, strict=True)]
    assert (count, float(loss)) == (7, pytest.approx(sum(surprise), abs=1e-4))


def test_f1_is_of_the_positive_class(tokenizers: dict[str, Tokenizer]) -> None:
    examples = labeled(["1", "1", "0", "0", "1"])
    scores = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float32)
    task = Classification(labels=("0", "1"), metrics=("f1", "accuracy"))
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    assert task.measure(predictions, examples) == pytest.approx({"f1": 2 / 3, "accuracy": 3 / 5})
    assert replace(task, positive="0").measure(predictions, examples)["f1"] == pytest.approx(1 / 2)
