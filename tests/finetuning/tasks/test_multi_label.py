"""Sets of classes for texts: labels found and refused, scores as a plain oracle has them."""

import math

import numpy as np
import pytest
import torch
from text_examples import a_batch, labeled, scored

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import Label
from maskwright.finetuning.tasks import MultiLabel


def test_classes_are_all_that_some_example_has() -> None:
    assert MultiLabel.for_examples(labeled([("b", "a"), (), None, "c"])).labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([("a", "c")], "line 0: unknown label 'c'"),
        ([2.0], "line 0: its label 2.0 is not a list of classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_example(
    labels: list[Label | None], message: str, tokenizers: dict[str, Tokenizer]
) -> None:
    task = MultiLabel(labels=("a", "b"))
    with pytest.raises(DataError, match=message):
        task.features(labeled(labels), tokenizers["wordpiece"], max_length=20, segments=True, training=True)


def test_a_threshold_is_a_probability() -> None:
    with pytest.raises(DataError, match=r"threshold is 1\.0"):
        MultiLabel(labels=("a", "b"), threshold=1.0)


def test_multi_label_scores_equal_a_plain_oracle(tokenizers: dict[str, Tokenizer]) -> None:
    labels: list[Label | None] = [("a", "c"), (), ("b",), ("a", "b", "c")]
    examples, task = labeled(labels), MultiLabel(labels=("a", "b", "c"), threshold=0.4)
    scores = np.array([[2, -2, 0], [-1, -1, -1], [-0.3, 1, -3], [3, -1, 2]], dtype=np.float32)
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    loss = 0.0
    for number, prediction in enumerate(predictions):
        probabilities = [1 / (1 + math.exp(-score)) for score in scores[number].tolist()]
        assert prediction.value == [label for label, p in zip("abc", probabilities, strict=True) if p >= 0.4]
        of_set = math.prod(p if p >= 0.4 else 1 - p for p in probabilities)
        assert prediction.score == pytest.approx(of_set)
        assert list(prediction.details["probabilities"].values()) == pytest.approx(probabilities)
        its_labels = labels[number]
        assert isinstance(its_labels, tuple)
        loss -= sum(
            math.log(p if label in its_labels else 1 - p) for label, p in zip("abc", probabilities, strict=True)
        )
    assert [each.value for each in predictions] == [["a", "c"], [], ["a", "b"], ["a", "c"]]
    found, count = task.loss(torch.tensor(scores), a_batch(task, examples, tokenizers["wordpiece"]))
    assert (count, float(found)) == (4, pytest.approx(loss / 3, abs=1e-5))
    # Of six right and six predicted decisions five agree.
    measured = task.measure(predictions, examples)
    assert measured["micro_f1"] == pytest.approx(2 * 5 / 12)
    assert measured["subset_accuracy"] == pytest.approx(2 / 4)
