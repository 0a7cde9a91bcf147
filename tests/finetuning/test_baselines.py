"""Baselines of unusual data: none where none can be trained, and bounded memory for many classes."""

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from maskwright.finetuning import baselines
from maskwright.finetuning.baselines import baselines_of
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.labeled import Labeled
from maskwright.finetuning.tasks import make_task

Rows = Sequence[tuple[str, Any]]


def labeled(train: Rows, dev: Rows) -> Labeled:
    parts = {
        part: ExampleFile(
            name=part, examples=tuple(TextExample(key=text, texts=(text,), label=label) for text, label in rows)
        )
        for part, rows in (("train", train), ("dev", dev))
    }
    every = [example for part in parts.values() for example in part.examples]
    task = make_task("classification", None, every, {})
    return Labeled(benchmark=None, task=task, parts=parts, read_as={}, notes=())


@pytest.mark.parametrize(
    "rows", [[("a good film", "pos")], [("!", "pos"), ("?", "neg")], [("", "pos"), ("\u3000", "neg")]]
)
def test_training_examples_of_one_class_or_without_words_have_no_tf_idf_model(rows: list[tuple[str, str]]) -> None:
    found = baselines_of(labeled(rows, [("a good film", "pos"), ("a bad film", "neg")]))
    assert list(found) == ["majority class"]


def test_many_classes_take_little_memory_and_are_learned() -> None:
    rows = [(f"word{n % 1000} pair{n % 1000} other{n}", f"L{n % 1000}") for n in range(2000)]
    tracemalloc.start()
    found = baselines_of(labeled(rows, rows[:500]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    scores = found["TF-IDF + complement naive Bayes"]["dev"]
    assert scores["accuracy"] > 0.5
    assert peak < 300 << 20


def test_the_most_frequent_features_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"{'good' if n % 2 else 'bad'} w{n}", "pos" if n % 2 else "neg") for n in range(40)]
    monkeypatch.setattr(baselines, "_MOST_WEIGHTS", 4)  # Two features: good and bad.
    found = baselines_of(labeled(rows, rows[:10]))
    assert found["TF-IDF + logistic regression"]["dev"]["accuracy"] == 1.0
