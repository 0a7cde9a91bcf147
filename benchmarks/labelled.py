"""Labelled examples to fine-tune on, and a model to begin with, the same for both sides.

Made examples have the lengths of SST-2's and SQuAD's; what they say can be learnt, a little: a text's class leans on
its words, an answer stands behind the question's word. With `--labelled` they are the published ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.own import OwnStep
from benchmarks.score_sets import chosen_sets, write_parts
from benchmarks.settings import Settings
from benchmarks.shapes import Shape
from benchmarks.tokenizer import word, word_tokenizer
from benchmarks.workloads import made_text, mlm_recipe, natural_lengths, zipf_ids
from maskwright.core.types import IntArray
from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_wordpiece
from maskwright.finetuning.examples import Answer, QuestionExample, TextExample
from maskwright.finetuning.features import Features
from maskwright.finetuning.fine_tuned import build, reads_segments
from maskwright.finetuning.labelled import LabelledRequest, read_labelled
from maskwright.finetuning.tasks import Classification, QuestionAnswering, Task
from maskwright.training.reporting import Silent

Name = Literal["SST-2", "SQuAD"]
NAMES: tuple[Name, ...] = ("SST-2", "SQuAD")
DROPOUT = 0.1

_SETS: dict[Name, str] = {"SST-2": "sst-2", "SQuAD": "squad"}
_LENGTHS: dict[Name, int] = {"SST-2": 128, "SQuAD": 384}
"""Tokens of a sequence at most: GLUE's and SQuAD's example scripts of transformers."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Log-normal numbers of words, within bounds."""

    median: float
    sigma: float
    least: int
    most: int

    def draw(self, count: int, draws: np.random.Generator) -> IntArray:
        drawn = np.exp(draws.normal(np.log(self.median), self.sigma, count))
        return np.clip(np.rint(drawn), self.least, self.most).astype(np.int64)


_SHORT, _LONG, _ASKED = _Sizes(13.0, 0.65, 3, 66), _Sizes(190.0, 0.38, 60, 700), _Sizes(12.0, 0.3, 4, 40)
"""Words of made texts: as SST-2's training phrases, SQuAD's paragraphs and its questions have tokens."""
_LEANING = 0.25
"""Share of a made text's words that tell its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSet:
    """Examples of one set.

    Attributes:
        name: As tables call it.
        task: What is learnt, as published but for the number of examples.
        train, dev: Examples.
        length: Tokens of a sequence at most.
        made: Whether they were made for this measurement.
    """

    name: Name
    task: Task[Any]
    train: tuple[Any, ...]
    dev: tuple[Any, ...]
    length: int
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A set as both sides take it.

    Attributes:
        labelled: Its examples.
        folder: A model with a fresh head for it, as `FineTunedModel.save` writes it.
        tokenizer: The model's.
        train: Sequences to learn from, the same for both sides.
        scored: Sequences of the development examples.
        dropout: Share dropped, of hidden values and of attention probabilities, and before the last layer.
    """

    labelled: LabelledSet
    folder: Path
    tokenizer: Tokenizer
    train: Features
    scored: Features
    dropout: float


def labelled_set(name: Name, settings: Settings, *, train: int, dev: int) -> LabelledSet:
    """Read or make the examples of a set.

    Args:
        name: The set.
        settings: Where published ones lie; None makes them.
        train, dev: How many of each at most, of questions about so many.
    """
    length = 48 if settings.quick else _LENGTHS[name]
    if settings.labelled is None:
        return _made(name, settings, train, dev, length)
    (published,) = chosen_sets([_SETS[name]])
    folder = settings.scratch / "labelled" / f"{published.name}-{train}-{dev}"
    files = write_parts(published, settings.labelled, folder, {"train": train, "dev": dev})
    read = read_labelled(LabelledRequest.of(task=published.task, files=files, columns={}), {}, Silent())
    return LabelledSet(
        name=name, task=read.task, train=read.train.examples, dev=read.dev.examples, length=length, made=False
    )


def prepare(
    labelled: LabelledSet, shape: Shape, settings: Settings, seed: int = 0, *, dropout: float = DROPOUT
) -> Prepared:
    """Write the model that both sides begin with, and lay out the sequences that both compute on.

    Args:
        labelled: Examples.
        shape: The model, unless the settings name one.
        settings: A pretrained model; None draws weights, with a vocabulary learnt on the examples.
        seed: Keys the new weights.
        dropout: Of the model.
    """
    start = settings.model or _drawn(labelled, shape, settings)
    folder = settings.scratch / f"{labelled.name}-{shape.name}-{seed}"
    built = build(
        start,
        labelled.task,
        seed=seed,
        max_length=labelled.length,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        head_dropout=dropout,
    )
    built.save(folder)
    segments = reads_segments(built.encoder.config, built.tokenizer)

    def features(examples: Sequence[Any], *, training: bool) -> Features:
        return labelled.task.features(
            examples, built.tokenizer, max_length=labelled.length, segments=segments, training=training
        )

    return Prepared(
        labelled=labelled,
        folder=folder,
        tokenizer=built.tokenizer,
        train=features(labelled.train, training=True),
        scored=features(labelled.dev, training=False),
        dropout=dropout,
    )


def taken(features: Features, units: IntArray) -> Features:
    """Return some units, in the order given, of features whose units are single sequences.

    Args:
        features: Without positions: nothing is tagged.
        units: Shape (U',), numbers of units.
    """
    lengths = np.diff(features.cu_seqlens)[units]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.repeat(features.cu_seqlens[units] - bounds[:-1], lengths) + np.arange(bounds[-1])
    return replace(
        features,
        ids=features.ids[tokens],
        segment_ids=features.segment_ids[tokens],
        cu_seqlens=bounds.astype(features.cu_seqlens.dtype),
        units=np.arange(len(units), dtype=features.units.dtype),
        examples=features.examples[units],
        labels=None if features.labels is None else features.labels[units],
        offsets=None if features.offsets is None else features.offsets[tokens],
    )


def spread(features: Features, count: int) -> Features:
    """Return so many units at even distances: those of one text, which lie together, are of about the same length."""
    count = min(count, features.num_units)
    return taken(features, (np.arange(count) * features.num_units) // count)


def _drawn(labelled: LabelledSet, shape: Shape, settings: Settings) -> Path:
    """Write a model of drawn weights, as a pretraining run leaves it."""
    folder = settings.scratch / f"{labelled.name}-{shape.name}"
    if labelled.made:
        tokenizer = word_tokenizer(shape.vocabulary)
    else:
        texts = [text for example in (*labelled.train, *labelled.dev) for text in _texts(example)]
        tokenizer = train_wordpiece(WordPiece(vocab_size=shape.vocabulary, lowercase=True), texts, texts)
    vocabulary = tokenizer.special_tokens.vocab_size
    text = made_text(natural_lengths(64, settings.seed), vocabulary, settings.seed)
    recipe = mlm_recipe(replace(shape, vocabulary=vocabulary), dropout=DROPOUT, batch=8, length=labelled.length)
    OwnStep(recipe, text, seed=settings.seed).save(folder)
    tokenizer.save(folder, max_length=labelled.length)
    return folder


def _texts(example: TextExample | QuestionExample) -> tuple[str, ...]:
    return example.texts if isinstance(example, TextExample) else (example.question, example.context)


# --- made examples


def _made(name: Name, settings: Settings, train: int, dev: int, length: int) -> LabelledSet:
    vocabulary = 500 if settings.quick else settings.vocabulary or 8192
    draws = np.random.default_rng([settings.seed, 5])
    make = _made_texts if name == "SST-2" else _made_questions
    examples = make(train + dev, vocabulary, draws, settings.seed)
    task: Task[Any] = (
        Classification(labels=("0", "1"), metrics=("accuracy",)) if name == "SST-2" else QuestionAnswering()
    )
    return LabelledSet(
        name=name, task=task, train=tuple(examples[:train]), dev=tuple(examples[train:]), length=length, made=True
    )


def _made_texts(count: int, vocabulary: int, draws: np.random.Generator, seed: int) -> list[TextExample]:
    """Texts in which a share of the words is odd or even with the class."""
    sizes = _SHORT.draw(count, draws)
    ids = zipf_ids(int(sizes.sum()), vocabulary, seed)
    classes = draws.integers(0, 2, count)
    leaning = draws.random(len(ids)) < _LEANING
    ids = np.where(leaning, ids - (ids - np.repeat(classes, sizes)) % 2, ids)
    ids = np.maximum(ids, 5)
    return [
        TextExample(key=str(number), texts=(" ".join(word(id) for id in piece.tolist()),), label=str(label))
        for number, (piece, label) in enumerate(
            zip(np.split(ids, np.cumsum(sizes)[:-1]), classes.tolist(), strict=True)
        )
    ]


def _made_questions(count: int, vocabulary: int, draws: np.random.Generator, seed: int) -> list[QuestionExample]:
    """Questions that hold a rare word of the text: the two words behind it are the answer."""
    sizes = _LONG.draw(count, draws)
    asked = _ASKED.draw(count, draws)
    ids = zipf_ids(int(sizes.sum() + asked.sum()), vocabulary, seed)
    pieces = np.split(ids, np.cumsum(np.stack([sizes, asked], axis=1).ravel())[:-1])
    examples = []
    for number in range(count):
        words = [word(id) for id in pieces[2 * number].tolist()]
        question = [word(id) for id in pieces[2 * number + 1].tolist()]
        place = int(draws.integers(1, len(words) - 2))
        question[-1] = words[place - 1]
        start = len(" ".join(words[:place])) + 1
        answer = Answer(text=" ".join(words[place : place + 2]), start=start)
        examples.append(
            QuestionExample(key=str(number), question=" ".join(question), context=" ".join(words), answers=(answer,))
        )
    return examples
