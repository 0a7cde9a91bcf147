"""Classes, numbers and sets of classes for texts and pairs: sequences as transformers makes them, plain oracles."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.errors import DataError
from maskwright.evaluation.batching import Batcher, scoring_batches
from maskwright.evaluation.examples import Label, TextExample
from maskwright.evaluation.features import FeatureBatch, Features
from maskwright.evaluation.layout import cut_pairs
from maskwright.evaluation.tasks import Classification, MultiLabel, Regression, task_from_json
from maskwright.text.tokenizer import Tokenizer

KINDS = ("wordpiece", "byte_bpe", "unigram")
TEXTS = (
    "The quick brown fox doesn't jump.",
    "",
    "   ",
    "北京大学在 2019 年 visited Größe",
    " leading and trailing ",
    "emoji 😀 done [SEP] not special",
    "a\tb\x08c\u00a0d",
    "What did the woman say about the price of the tour? It sounds reasonable.",
)


def example(texts: Sequence[str], label: Label | None = None, key: str = "1") -> TextExample:
    return TextExample(key=key, texts=tuple(texts), label=label)


def sequences_of(features: Features) -> list[tuple[list[int], list[int]]]:
    bounds = features.cu_seqlens.tolist()
    return [
        (features.ids[begin:end].tolist(), features.segment_ids[begin:end].tolist())
        for begin, end in itertools.pairwise(bounds)
    ]


def as_theirs(theirs: Any, examples: Sequence[TextExample], **options: Any) -> list[dict[str, list[int]]]:
    """Call a tokenizer of transformers with lists, as datasets do: a lone empty second text would be no text to it."""
    called = [theirs(*([text] for text in each.texts), return_token_type_ids=True, **options) for each in examples]
    return [{name: values[0] for name, values in each.items()} for each in called]


def made(
    examples: Sequence[TextExample], tokenizer: Tokenizer, max_length: int = 512, segments: bool = True
) -> Features:
    task = Classification(labels=("0", "1"))
    return task.features(examples, tokenizer, max_length=max_length, segments=segments, training=False)


@pytest.mark.parametrize("kind", KINDS)
def test_single_texts_and_pairs_equal_transformers(
    kind: str, tokenizers: dict[str, Tokenizer], theirs: dict[str, Any]
) -> None:
    examples = [example([text]) for text in TEXTS] + [example([a, b]) for a in TEXTS for b in TEXTS]
    features = made(examples, tokenizers[kind], segments=kind != "byte_bpe")
    expected = as_theirs(theirs[kind], examples)
    assert sequences_of(features) == [(each["input_ids"], each["token_type_ids"]) for each in expected]
    assert features.num_cut == 0
    assert features.labels is None
    assert features.units.tolist() == features.examples.tolist() == list(range(len(examples)))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_are_too_long_are_cut_as_transformers_cuts_them(
    kind: str, tokenizers: dict[str, Tokenizer], theirs: dict[str, Any]
) -> None:
    # Even room, where both ways of cutting agree: 3 or 4 special tokens in a pair.
    length = 14 if kind == "byte_bpe" else 13
    long = [text for text in TEXTS if len(text) > 12]
    examples = [example([text]) for text in TEXTS] + [example([a, b]) for a in long for b in TEXTS]
    features = made(examples, tokenizers[kind], max_length=length)
    expected = as_theirs(theirs[kind], examples, truncation="longest_first", max_length=length)
    whole = as_theirs(theirs[kind], examples)
    assert [ids for ids, _ in sequences_of(features)] == [each["input_ids"] for each in expected]
    assert features.num_cut == sum(len(each["input_ids"]) > length for each in whole) > 5


def cut_one_by_one(first: int, second: int, room: int) -> tuple[int, int]:
    """Drop tokens one by one as BERT's run_classifier.py does."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=20), st.integers(2, 40))
def test_pairs_are_cut_token_by_token_from_the_longer_text(lengths: list[tuple[int, int]], room: int) -> None:
    first, second = cut_pairs(*np.array(lengths).T, room)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [cut_one_by_one(*pair, room) for pair in lengths]


def test_cutting_with_odd_room_differs_from_transformers_by_the_stated_token(
    tokenizers: dict[str, Tokenizer], theirs: dict[str, Any]
) -> None:
    short, long = "the woman say the price of the tour " * 2, "the woman say the price of the tour " * 3
    for first, second, ours_longer in ((short, long, True), (long, short, False)):
        (ids, segments) = sequences_of(made([example([first, second])], tokenizers["wordpiece"], max_length=12))[0]
        other = theirs["wordpiece"](first, second, truncation="longest_first", max_length=12)
        assert len(ids) == len(other["input_ids"]) == 12
        assert segments.count(0) == 2 + 5, "the first text keeps five tokens of nine"
        assert (other["token_type_ids"].count(0) == 2 + 4) is ours_longer


def test_no_room_for_text_is_refused(tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(DataError, match=r"sequences of 4 tokens leave no room.*at least 5"):
        made([example(["a", "b"])], tokenizers["wordpiece"], max_length=4)
    with pytest.raises(DataError, match=r"sequences of 2 tokens leave no room.*at least 3"):
        made([example(["a"])], tokenizers["byte_bpe"], max_length=2)
    assert len(made([example(["a"])], tokenizers["byte_bpe"], max_length=3).ids) == 3


# Labels.


def labelled(labels: Sequence[Label | None]) -> list[TextExample]:
    return [example([f"text {number}"], label, key=f"line {number}") for number, label in enumerate(labels)]


def test_classes_are_found_and_sorted_as_numbers_where_they_are_numbers() -> None:
    assert Classification.for_examples(labelled(["10", "9", None, "-1", "9"])).labels == ("-1", "9", "10")
    assert Classification.for_examples(labelled(["b", "10", "a"])).labels == ("10", "a", "b")
    assert MultiLabel.for_examples(labelled([("b", "a"), (), None, "c"])).labels == ("a", "b", "c")


def test_training_leaves_out_examples_without_a_label(tokenizers: dict[str, Tokenizer]) -> None:
    examples = labelled(["yes", None, "no", "yes"])
    task = Classification.for_examples(examples)
    features = task.features(examples, tokenizers["wordpiece"], max_length=20, segments=True, training=True)
    assert features.examples.tolist() == [0, 2, 3]
    assert features.units.tolist() == [0, 1, 2]
    assert features.labels is not None
    assert (features.labels.tolist(), features.labels.dtype) == ([1, 0, 1], np.int64)
    scoring = task.features(examples, tokenizers["wordpiece"], max_length=20, segments=True, training=False)
    assert scoring.examples.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        (Classification(labels=("yes", "no")), ["yes", "nope"], "line 1: unknown label 'nope'.*Did you mean 'no'"),
        (Classification(labels=("yes", "no")), [None, None], "none of the 2 examples has a label"),
        (Classification(labels=("yes", "no")), ["yes", 1.5], r"line 1: its label 1\.5 is not the name of a class"),
        (Regression(), ["high"], "line 0: its label 'high' is not a number"),
        (Regression(), [float("nan")], "line 0: its label nan is not a number"),
        (MultiLabel(labels=("a", "b")), [("a", "c")], "line 0: unknown label 'c'"),
        (MultiLabel(labels=("a", "b")), [2.0], "line 0: its label 2.0 is not a list of classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_example(
    task: Any, labels: list[Label | None], message: str, tokenizers: dict[str, Tokenizer]
) -> None:
    with pytest.raises(DataError, match=message):
        task.features(labelled(labels), tokenizers["wordpiece"], max_length=20, segments=True, training=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classification(labels=("a",)), "only 'a'"),
        (lambda: Classification(labels=("a", "b", "a")), "'a' stands twice"),
        (lambda: Classification(labels=("a", "b"), metrics=("acuracy",)), "Did you mean 'accuracy'"),
        (lambda: Classification(labels=("a", "b"), metrics=()), "needs a metric"),
        (lambda: Classification(labels=("a", "b", "c"), metrics=("f1",)), "'f1' is of one class"),
        (lambda: Classification(labels=("a", "b"), positive="c"), "positive class: unknown label 'c'"),
        (lambda: Classification.for_examples(labelled([1.0, 2.0])), "Choose the task 'regression'"),
        (lambda: Regression(scale=0), "scale of a regression is 0"),
        (lambda: Regression(offset=math.inf), "offset of a regression is inf"),
        (lambda: Regression(metrics=("mean_absolute_error", "pearson")), "of which less is better"),
        (lambda: Regression(bounds=(5, 0)), "bounds of a regression"),
        (lambda: MultiLabel(labels=("a", "b"), threshold=1.0), r"threshold is 1\.0"),
    ],
)
def test_tasks_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


# Scores: losses, predictions, measures.


def scored(task: Any, examples: list[TextExample], scores: np.ndarray[Any, Any], tokenizer: Tokenizer) -> list[Any]:
    """Run scores (a row an example) through batches in another order, and back."""
    features = task.features(examples, tokenizer, max_length=20, segments=True, training=False)
    by_unit: dict[int, Any] = {}
    for batch in scoring_batches(features, tokens=16, pad=0, device=torch.device("cpu")):
        rows = task.by_unit(torch.tensor(scores[batch.unit_numbers], dtype=torch.float32), batch)
        by_unit.update(zip(batch.unit_numbers.tolist(), rows, strict=True))
    return list(task.predictions([by_unit[unit] for unit in range(len(examples))], features, examples, tokenizer))


def a_batch(task: Any, examples: list[TextExample], tokenizer: Tokenizer) -> FeatureBatch:
    features = task.features(examples, tokenizer, max_length=20, segments=True, training=True)
    return Batcher(features, pad=0, tokens=10_000, device=torch.device("cpu")).batch(np.arange(features.num_units))


def test_classification_scores_equal_a_plain_oracle(tokenizers: dict[str, Tokenizer]) -> None:
    labels = ["b", "a", "c", "a", "b", "b", "a"]
    examples, task = (
        labelled(labels),
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
    examples = labelled(["1", "1", "0", "0", "1"])
    scores = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float32)
    task = Classification(labels=("0", "1"), metrics=("f1", "accuracy"))
    predictions = scored(task, examples, scores, tokenizers["wordpiece"])
    assert task.measure(predictions, examples) == pytest.approx({"f1": 2 / 3, "accuracy": 3 / 5})
    assert replace(task, positive="0").measure(predictions, examples)["f1"] == pytest.approx(1 / 2)


def test_regression_learns_divided_numbers_and_gives_back_whole_ones(tokenizers: dict[str, Tokenizer]) -> None:
    examples = labelled([0.0, 5.0, 2.5, "1.25"])
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


def test_multi_label_scores_equal_a_plain_oracle(tokenizers: dict[str, Tokenizer]) -> None:
    labels: list[Label | None] = [("a", "c"), (), ("b",), ("a", "b", "c")]
    examples, task = labelled(labels), MultiLabel(labels=("a", "b", "c"), threshold=0.4)
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


@pytest.mark.parametrize(
    "task", [Classification(labels=("a", "b")), Regression(), MultiLabel(labels=("a", "b"))], ids=lambda task: task.kind
)
def test_measuring_needs_labels(task: Any) -> None:
    with pytest.raises(DataError, match="2 of 2 examples have no label to compare with, the first is line 0"):
        task.measure([], labelled([None, None]))
    with pytest.raises(DataError, match="no example to measure"):
        task.measure([], [])


def test_no_examples_give_no_predictions(tokenizers: dict[str, Tokenizer]) -> None:
    for task in (Classification(labels=("a", "b")), Regression(), MultiLabel(labels=("a", "b"))):
        features = task.features([], tokenizers["wordpiece"], max_length=9, segments=True, training=False)
        assert features.num_units == 0
        assert task.predictions([], features, [], tokenizers["wordpiece"]) == []


# JSON.


@pytest.mark.parametrize(
    "task",
    [
        Classification(labels=("a", "b"), metrics=("f1", "accuracy"), positive="a"),
        Regression(scale=5, bounds=(0, 5), metrics=("spearman",)),
        MultiLabel(labels=("a", "b"), threshold=0.3),
    ],
    ids=lambda task: task.kind,
)
def test_tasks_come_back_from_json(task: Any) -> None:
    assert task_from_json(json.loads(json.dumps(task.to_json()))) == task


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "clasification", "labels": ["a", "b"]}, "Did you mean 'classification'"),
        ({"labels": ["a", "b"]}, "unknown kind of task 'None'"),
        ({"kind": "classification", "labels": ["a", "b"], "metric": ["f1"]}, "Did you mean 'metrics'"),
        ({"kind": "classification"}, "labels"),
        ({"kind": "regression", "labels": []}, "unknown field"),
    ],
)
def test_json_that_is_no_task_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        task_from_json(data)
