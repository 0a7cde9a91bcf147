"""Folders we write give the same answers in transformers' pipelines, for every family and every kind of task.

transformers 5 has no pipeline for question answering, and never had one for multiple choice: there its models are asked
directly, with its own tokenizers.
"""

import itertools
import warnings

import pytest
import transformers
from tiny_tuned import FAMILIES, LABELS, predict_examples, pretrained

from maskwright.finetuning.examples import TaggedExample, TextExample
from maskwright.finetuning.model.fine_tuned import build
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression

SINGLE = (
    "The cat sat on the old mat.",
    "Wir lieben München und Straßen!",
    "我们爱北京天安门",
    "cats 😀 & dogs [SEP] <s>",
    "the old dogs ran to the old tree and " * 5,
)
"""One of them is longer than the models read, and one writes special tokens and what no vocabulary holds."""
PAIRS = (("Who sat on the mat?", "The cat did."), ("Straßen", "北京"), ("Anna lives in Paris.", "Bob?"))
SENTENCES = (
    ("Anna", "lives", "in", "Paris", ",", "Bob", "in", "London", "."),
    ("the", "unbelievable", "dogs", "of", "München"),
    ("Who", "?"),
)
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    """A pretrained model of a family."""
    return pretrained(tmp_path_factory.mktemp("pretrained") / request.param, request.param)


def _saved(folder, task, path):
    model = build(folder, task, seed=5)
    model.save(path)
    return model


def _pipeline(name, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.pipeline(name, model=str(path), device="cpu")


def _asked(pipe, texts):
    # Of long texts both read the beginning. A pair longer than that may lose another token (see `layout.cut_pairs`).
    inputs = texts[0] if len(texts) == 1 else {"text": texts[0], "text_pair": texts[1]}
    (outputs,) = [pipe(inputs, top_k=None, truncation=True)]
    return {each["label"]: each["score"] for each in outputs}


@pytest.mark.parametrize("task", [Classification(labels=LABELS), MultiLabel(labels=LABELS)], ids=["one", "several"])
def test_text_classification(folder, tmp_path, task):
    model, pipe = _saved(folder, task, tmp_path), _pipeline("text-classification", tmp_path)
    examples = [
        TextExample(key=str(number), texts=texts, label=None)
        for number, texts in enumerate([*((text,) for text in SINGLE), *PAIRS])
    ]
    answers = predict_examples(model, examples)
    for example, answer in zip(examples, answers, strict=True):
        actual = _asked(pipe, example.texts)
        assert actual == pytest.approx(answer.details["probabilities"], abs=1e-5)
        if task.kind == "classification":
            assert max(actual, key=actual.__getitem__) == answer.value
        else:
            assert [label for label in LABELS if actual[label] >= task.threshold] == answer.value
    # Answers are no constant that anything would agree with.
    firsts = [answer.details["probabilities"][LABELS[0]] for answer in answers]
    assert len({round(first, 4) for first in firsts}) > 4


def test_regression(folder, tmp_path):
    model = _saved(folder, Regression(scale=5.0), tmp_path)
    pipe = _pipeline("text-classification", tmp_path)
    examples = [TextExample(key="1", texts=texts, label=None) for texts in PAIRS]
    for example, answer in zip(examples, predict_examples(model, examples), strict=True):
        assert _asked(pipe, example.texts) == {"LABEL_0": pytest.approx(answer.value, abs=1e-4)}


def test_token_classification(folder, tmp_path):
    task = Tagging(labels=TAGS, entities=True, metrics=("f1",))
    model, pipe = _saved(folder, task, tmp_path), _pipeline("token-classification", tmp_path)
    examples = [TaggedExample(key="1", words=words, tags=None) for words in SENTENCES]
    for example, answer in zip(examples, predict_examples(model, examples), strict=True):
        text = " ".join(example.words)
        starts = [0, *itertools.accumulate(len(word) + 1 for word in example.words)][:-1]
        tokens = pipe(text, ignore_labels=[])
        # A word's tag is that of its first piece, which may be nothing but the space before it.
        for word, start, tag, score in zip(
            example.words, starts, answer.value, answer.details["probabilities"], strict=True
        ):
            first = next(token for token in tokens if token["start"] >= start - 1)
            assert (first["entity"], first["score"]) == (tag, pytest.approx(score, abs=1e-5)), word
        if model.tokenizer.kind == "wordpiece":  # of other tokenizers the pipeline guesses what a word is
            # As the model card calls it: no entity begins or ends within a word.
            entities = pipe(text, aggregation_strategy="first")
            ends = [start + len(word) for start, word in zip(starts, example.words, strict=True)]
            assert all(one["start"] in starts and one["end"] in ends for one in entities)
