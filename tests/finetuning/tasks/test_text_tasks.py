"""Texts and pairs as sequences, as transformers makes them; and what holds for all kinds of tasks that take them."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_examples import example, labeled

from maskwright.core.errors import DataError
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import Features, cut_pairs
from maskwright.finetuning.tasks import Classification, MultiLabel, Regression, task_from_json

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
    with pytest.raises(DataError, match=r"sequences of 4 tokens are too short.*at least 5"):
        made([example(["a", "b"])], tokenizers["wordpiece"], max_length=4)
    with pytest.raises(DataError, match=r"sequences of 2 tokens are too short.*at least 3"):
        made([example(["a"])], tokenizers["byte_bpe"], max_length=2)
    assert len(made([example(["a"])], tokenizers["byte_bpe"], max_length=3).ids) == 3


# What holds for all three kinds.


@pytest.mark.parametrize(
    "task", [Classification(labels=("a", "b")), Regression(), MultiLabel(labels=("a", "b"))], ids=lambda task: task.kind
)
def test_measuring_needs_labels(task: Any) -> None:
    with pytest.raises(DataError, match="2 of 2 examples have no label; the first is line 0"):
        task.measure([], labeled([None, None]))
    with pytest.raises(DataError, match="no examples to evaluate"):
        task.measure([], [])


def test_no_examples_give_no_predictions(tokenizers: dict[str, Tokenizer]) -> None:
    for task in (Classification(labels=("a", "b")), Regression(), MultiLabel(labels=("a", "b"))):
        features = task.features([], tokenizers["wordpiece"], max_length=9, segments=True, training=False)
        assert features.num_units == 0
        assert task.predictions([], features, [], tokenizers["wordpiece"]) == []


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
