"""Baselines: frozen vectors are those of `embed`; none where none can be trained; bounded memory for many classes."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskwright
from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.checkpoints.sentence_folder import SentenceModules, write_sentence_modules
from maskwright.finetuning import baselines
from maskwright.finetuning.baselines import frozen_vectors, measure_baselines
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.labeled import LabeledData
from maskwright.finetuning.readers.options import Kind
from maskwright.finetuning.tasks import make_task
from maskwright.training.ranks.device import prepare_machine
from maskwright.training.start.existing import open_existing

Rows = Sequence[tuple[str, Any]]


def labeled(train: Rows, dev: Rows, kind: Kind = "classification") -> LabeledData:
    parts = {
        part: ExampleFile(
            name=part,
            examples=tuple(TextExample(key=text, texts=tuple(text.split("|")), label=label) for text, label in rows),
        )
        for part, rows in (("train", train), ("dev", dev))
    }
    every = [example for part in parts.values() for example in part.examples]
    task = make_task(kind, None, every, {})
    return LabeledData(benchmark=None, task=task, parts=parts, read_as={}, notes=())


@pytest.mark.parametrize(
    "rows", [[("a good film", "pos")], [("!", "pos"), ("?", "neg")], [("", "pos"), ("\u3000", "neg")]]
)
def test_training_examples_of_one_class_or_without_words_have_no_tf_idf_model(rows: list[tuple[str, str]]) -> None:
    actual = dict(measure_baselines(labeled(rows, [("a good film", "pos"), ("a bad film", "neg")])))
    assert list(actual) == ["majority class"]


def test_many_classes_take_little_memory_and_are_learned() -> None:
    rows = [(f"word{n % 1000} pair{n % 1000} other{n}", f"L{n % 1000}") for n in range(2000)]
    tracemalloc.start()
    actual = dict(measure_baselines(labeled(rows, rows[:500])))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    scores = actual["TF-IDF + complement naive Bayes"]["dev"]
    assert scores["accuracy"] > 0.5
    assert peak < 300 << 20


def test_the_most_frequent_features_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"{'good' if n % 2 else 'bad'} w{n}", "pos" if n % 2 else "neg") for n in range(40)]
    monkeypatch.setattr(baselines, "_MOST_WEIGHTS", 4)  # Two features: good and bad.
    actual = dict(measure_baselines(labeled(rows, rows[:10])))
    assert actual["TF-IDF + logistic regression"]["dev"]["accuracy"] == 1.0


def test_embedded_examples_of_one_class_have_no_model_on_frozen_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_MOST_EMBEDDED", 5)
    texts = [TextExample(key=str(n), texts=(f"word{n}",), label=None) for n in range(40)]
    embedded = {example.key for example in baselines._sample(texts, 5)}
    rows = [(f"word{n}", "pos" if str(n) in embedded else "neg") for n in range(40)]
    actual = dict(
        measure_baselines(labeled(rows, rows[:10]), lambda examples: np.zeros((len(examples), 4), np.float32))
    )
    assert list(actual) == ["majority class", "TF-IDF + logistic regression"]


def test_frozen_vectors_build_no_model_before_they_are_needed(bert_folder, monkeypatch):
    built: list[Any] = []
    build = Checkpoint.build
    monkeypatch.setattr(Checkpoint, "build", lambda *args, **options: built.append(1) or build(*args, **options))
    embed = frozen_vectors(open_existing(str(bert_folder)), 8, prepare_machine("cpu", None, None, "fp32"))
    assert not built
    for _ in range(2):
        embed([TextExample(key="", texts=("the cat sat",), label=None)])
    assert len(built) == 1


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_frozen_vectors_are_those_of_embed(pooling: Any, bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    maskwright.export(bert_folder, to="sentence-transformers", out=folder, pooling=pooling, normalize=True)
    machine = prepare_machine("cpu", None, None, "fp32")
    embed = frozen_vectors(open_existing(str(folder)), 8, machine)
    texts = ["the cat sat", "we love the tree and the cats ran to the mat"]  # the second one is truncated to 8 tokens
    short = ["the cat sat", "we love the tree and the"]
    expected = maskwright.embed(bert_folder, short, pooling=pooling, device="cpu")
    single = embed([TextExample(key="", texts=(text,), label=None) for text in texts])
    np.testing.assert_allclose(single, expected, atol=1e-5)
    first, second = embed([TextExample(key="", texts=(texts[0], texts[1]), label=None)]).reshape(4, -1)[:2]
    np.testing.assert_allclose([first, second], expected, atol=1e-5)


def test_frozen_vectors_pass_the_dense_module(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    maskwright.export(bert_folder, to="sentence-transformers", out=folder)
    width = open_existing(str(bert_folder)).config.hidden_size
    modules = SentenceModules(dense=torch.nn.Linear(width, 3))
    write_sentence_modules(folder, modules, hidden_size=width, max_length=8)
    embed = frozen_vectors(open_existing(str(folder)), 8, prepare_machine("cpu", None, None, "fp32"))
    vectors = embed([TextExample(key="", texts=("the cat sat",), label=None)])
    np.testing.assert_allclose(vectors, maskwright.embed(folder, ["the cat sat"], device="cpu"), atol=1e-5)


def test_sets_of_classes_are_predicted_class_by_class() -> None:
    rows = [
        (f"{' '.join(words)} w{n}", (*words, "always"))
        for n in range(60)
        for words in [[word for bit, word in enumerate(("joy", "fear")) if n >> bit & 1]]
    ]
    measured = dict(measure_baselines(labeled(rows, rows[:12], "multi_label")))
    assert list(measured) == ["majority set", "TF-IDF + logistic regression"]
    assert measured["TF-IDF + logistic regression"]["dev"]["subset_accuracy"] == 1.0


@pytest.mark.parametrize("kind", ["classification", "regression", "multi_label"])
def test_a_model_on_frozen_vectors_predicts_dev(kind: Kind) -> None:
    """One feature decides, the others are noise; the texts have no words for TF-IDF."""
    noise = np.random.default_rng(0)

    def embed(examples: Sequence[TextExample]) -> Any:
        decisive = [[3 * len(example.texts[0])] for example in examples]
        return np.hstack([decisive, noise.normal(size=(len(examples), 4))])

    label = {"classification": str, "regression": float, "multi_label": lambda n: ("b", "a")[n:]}[kind]
    rows = [("!" * (1 + n % 2), label(n % 2)) for n in range(60)]
    measured = dict(measure_baselines(labeled(rows, rows[:12], kind), embed))
    [(name, scores)] = list(measured.items())[1:]
    assert name.startswith("frozen vectors + ")
    assert next(iter(scores["dev"].values())) > 0.95


def test_scores_of_pairs_are_compared_with_the_words_that_they_share() -> None:
    words = [f"word{n}" for n in range(11)]
    rows = [(" ".join(words[:6]) + "|" + " ".join(words[6 - same : 11 - same]), float(same)) for same in range(6)]
    measured = dict(measure_baselines(labeled(rows, rows, "regression")))
    assert list(measured)[-1] == "TF-IDF cosine"
    assert measured["TF-IDF cosine"]["dev"]["spearman"] > 0.95
