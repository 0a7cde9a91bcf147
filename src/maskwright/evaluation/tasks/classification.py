"""One text or a pair, one answer: a class, a number, or any number of classes.

Each example is one sequence and one unit. A pair that is too long loses the last tokens of its longer text, one by one
(google-research/bert, run_classifier.py, `_truncate_seq_pair`); a single text loses its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.types import HeadKind
from maskwright.evaluation.examples import TextExample
from maskwright.evaluation.features import FeatureBatch, Features
from maskwright.evaluation.metrics.classification import accuracy, binary_f1, macro_f1, matthews
from maskwright.evaluation.metrics.correlation import mean_absolute_error, pearson, r_squared, spearman
from maskwright.evaluation.metrics.multi_label import multi_label_scores
from maskwright.evaluation.tasks.base import Prediction, Scores, Task
from maskwright.evaluation.tasks.parts import (
    as_json,
    check_labels,
    check_metrics,
    number_of,
    require_labels,
    rows,
    softmax,
    sorted_labels,
    unknown_label,
)
from maskwright.evaluation.tasks.texts import one_row_each, text_features, text_features_to_learn
from maskwright.text.tokenizer import Tokenizer

CLASS_METRICS = ("accuracy", "f1", "macro_f1", "matthews")
_LESS_IS_BETTER = "mean_absolute_error"
NUMBER_METRICS = ("r_squared", "pearson", "spearman", _LESS_IS_BETTER)
MULTI_LABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Classification(Task[TextExample]):
    """One of several classes for a text or a pair.

    Attributes:
        labels: Names of the classes, two or more.
        metrics: What is reported, the main one first: "accuracy", "f1" (of the class `positive`), "macro_f1" (mean of
            all classes' F1), "matthews" (correlation).
        positive: The class that "f1" is of; None for the second of two.
    """

    kind: ClassVar[str] = "classification"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    positive: str | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        check_metrics(self.metrics, CLASS_METRICS, self.kind)
        if self.positive is not None and self.positive not in self.labels:
            raise unknown_label("the task's positive class", self.positive, self.labels)
        if "f1" in self.metrics and self.positive is None and len(self.labels) > 2:
            raise DataError(
                f"the metric 'f1' is of one class, and there are {len(self.labels)}",
                allowed="a class named in `positive`, or the metric 'macro_f1'",
            )

    @classmethod
    def for_examples(cls, examples: Sequence[TextExample], **fields: Any) -> Self:
        """Make a task whose classes are those of some examples (training ones).

        Raises:
            DataError: If they have fewer than two classes, or labels of another kind.
        """
        found = {_class_name(example) for example in examples if example.label is not None}
        return cls(labels=sorted_labels(found), **fields)

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer."""
        return len(self.labels)

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Turn examples into sequences (see `Task.features`)."""
        if not training:
            return text_features(examples, tokenizer, max_length=max_length, segments=segments)
        numbers = number_of(self.labels)

        def target(example: TextExample) -> int:
            name = _class_name(example)
            if name not in numbers:
                raise unknown_label(f"example {example.key}", name, self.labels)
            return numbers[name]

        return text_features_to_learn(
            examples, tokenizer, max_length=max_length, segments=segments, target=target, dtype=np.int64
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed cross entropy and the number of units (see `Task.loss`)."""
        assert batch.labels is not None
        return F.cross_entropy(scores, batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (C,) a unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Name each example's most probable class; details hold the probabilities of all."""
        if not examples:
            return []
        probabilities = softmax(one_row_each(scores, features, examples))
        best = probabilities.argmax(axis=1).tolist()
        return [
            Prediction(
                key=example.key,
                value=self.labels[number],
                score=its[number],
                details={"probabilities": dict(zip(self.labels, its, strict=True))},
            )
            for example, number, its in zip(examples, best, probabilities.tolist(), strict=True)
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        """Compare with the examples' labels (see `Task.measure`)."""
        require_labels(examples)
        labels = [_class_name(example) for example in examples]
        predicted = [prediction.value for prediction in predictions]
        positive = self.labels[1] if self.positive is None else self.positive
        known: dict[str, Callable[[], float]] = {
            "accuracy": lambda: accuracy(labels, predicted),
            "f1": lambda: binary_f1(labels, predicted, positive=positive),
            "macro_f1": lambda: macro_f1(labels, predicted, labels=self.labels),
            "matthews": lambda: matthews(labels, predicted),
        }
        return {name: known[name]() for name in self.metrics}

    def check(self, examples: Sequence[TextExample]) -> None:
        """Refuse classes that the task does not have (see `Task.check`)."""
        _check_known(examples, self.labels, lambda example: (_class_name(example),))

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Task[TextExample]):
    """A number for a text or a pair, learnt by squared error.

    Attributes:
        metrics: What is reported, the main one first: "r_squared" (share of the numbers' variance that is told),
            "pearson", "spearman" (correlations, which do not see whether numbers are too large or too small
            throughout); beside these "mean_absolute_error", the smaller the better.
        offset: What is taken from targets in training and added to outputs in use.
        scale: What targets, less the offset, are divided by in training and outputs multiplied by in use: ELECTRA
            learns STS-B's 0 to 5 as 0 to 1 (electra: configure_finetuning.py), BERT and RoBERTa as it is.
        bounds: Least and greatest number that can be; predictions beyond are set to it. None for no bounds. What is
            measured is the output as it was, as GLUE's systems were: to set numbers to a bound makes them equal.
    """

    kind: ClassVar[str] = "regression"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...] = field(default=(), init=False)
    metrics: tuple[str, ...] = NUMBER_METRICS
    offset: float = 0.0
    scale: float = 1.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics, NUMBER_METRICS, self.kind)
        if self.metrics[0] == _LESS_IS_BETTER:
            raise DataError(
                f"the main metric of a regression is {self.metrics[0]!r}, of which less is better",
                allowed=f"as the first one: {', '.join(name for name in NUMBER_METRICS if name != _LESS_IS_BETTER)}",
            )
        if not np.isfinite(self.offset):
            raise DataError(f"the offset of a regression is {self.offset!r}", allowed="a finite number")
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise DataError(f"the scale of a regression is {self.scale!r}", allowed="a number above 0")
        if self.bounds is not None and not (len(self.bounds) == 2 and self.bounds[0] < self.bounds[1]):
            raise DataError(
                f"the bounds of a regression are {self.bounds!r}", allowed="two numbers, the smaller one first"
            )

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer."""
        return 1

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Turn examples into sequences (see `Task.features`)."""
        if not training:
            return text_features(examples, tokenizer, max_length=max_length, segments=segments)
        return text_features_to_learn(
            examples,
            tokenizer,
            max_length=max_length,
            segments=segments,
            target=lambda example: (_number(example) - self.offset) / self.scale,
            dtype=np.float32,
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed squared error, of numbers in units of `scale`, and the number of units."""
        assert batch.labels is not None
        return F.mse_loss(scores.squeeze(1), batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (1,) a unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Give each example its number, within `bounds`; details say the output as it was where that differs."""
        if not examples:
            return []
        numbers = one_row_each(scores, features, examples)[:, 0].astype(np.float64) * self.scale + self.offset
        within = numbers if self.bounds is None else np.clip(numbers, *self.bounds)
        return [
            Prediction(
                key=example.key, value=value, score=None, details={} if value == number else {"unbounded": number}
            )
            for example, value, number in zip(examples, within.tolist(), numbers.tolist(), strict=True)
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        """Compare with the examples' numbers (see `Task.measure`)."""
        require_labels(examples)
        labels = [_number(example) for example in examples]
        predicted = [prediction.details.get("unbounded", prediction.value) for prediction in predictions]
        known = {
            "r_squared": r_squared,
            "pearson": pearson,
            "spearman": spearman,
            _LESS_IS_BETTER: mean_absolute_error,
        }
        return {name: known[name](labels, predicted) for name in self.metrics}

    def check(self, examples: Sequence[TextExample]) -> None:
        """Refuse labels that are no numbers, or all the same one: no correlation has a value then."""
        if len({_number(example) for example in examples}) < 2:
            raise DataError(
                f"{len(examples)} examples with the same number can measure no correlation",
                allowed="two different numbers or more",
                todo="Where they are held out of few training examples, name a file of others with `--dev FILE`.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        plain = as_json(self)
        if not self.offset:  # As before there was one, so that what was begun then goes on.
            del plain["offset"]
        return plain


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLabel(Task[TextExample]):
    """All classes that hold for a text or a pair: each by itself, none or several may.

    Attributes:
        labels: Names of the classes.
        metrics: What is reported, the main one first: "micro_f1" (over all decisions), "macro_f1" (mean of the
            classes' F1), "subset_accuracy" (share of examples whose set of classes is exactly right), "f1_LABEL" (of
            one class).
        threshold: Probability from which a class counts as given, in (0, 1).
    """

    kind: ClassVar[str] = "multi_label"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = MULTI_LABEL_METRICS
    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_labels(self.labels)
        check_metrics(self.metrics, (*MULTI_LABEL_METRICS, *(f"f1_{label}" for label in self.labels)), self.kind)
        if not 0 < self.threshold < 1:
            raise DataError(f"the threshold is {self.threshold!r}", allowed="a probability between 0 and 1")

    @classmethod
    def for_examples(cls, examples: Sequence[TextExample], **fields: Any) -> Self:
        """Make a task whose classes are those of some examples (training ones).

        Raises:
            DataError: If they have fewer than two classes, or labels of another kind.
        """
        found = {name for example in examples if example.label is not None for name in _class_names(example)}
        return cls(labels=sorted_labels(found), **fields)

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer."""
        return len(self.labels)

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Turn examples into sequences (see `Task.features`)."""
        if not training:
            return text_features(examples, tokenizer, max_length=max_length, segments=segments)
        known = frozenset(self.labels)

        def target(example: TextExample) -> list[bool]:
            names = _class_names(example)
            for name in names:
                if name not in known:
                    raise unknown_label(f"example {example.key}", name, self.labels)
            return [label in names for label in self.labels]

        return text_features_to_learn(
            examples, tokenizer, max_length=max_length, segments=segments, target=target, dtype=np.float32
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the binary cross entropy, the mean of the classes summed over units, and the number of units.

        Divided by the units this is transformers' loss of a multi-label model: the mean over units and classes.
        """
        assert batch.labels is not None
        total = F.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum")
        return total / len(self.labels), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (C,) a unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """List each example's classes; the score is the probability of just this set, classes being independent."""
        if not examples:
            return []
        probabilities = 1 / (1 + np.exp(-one_row_each(scores, features, examples)))
        holds = probabilities >= self.threshold
        of_set = np.where(holds, probabilities, 1 - probabilities).prod(axis=1)
        return [
            Prediction(
                key=example.key,
                value=[label for label, held in zip(self.labels, its_holds, strict=True) if held],
                score=score,
                details={"probabilities": dict(zip(self.labels, its, strict=True))},
            )
            for example, its_holds, score, its in zip(
                examples, holds.tolist(), of_set.tolist(), probabilities.tolist(), strict=True
            )
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        """Compare with the examples' classes (see `Task.measure`)."""
        require_labels(examples)
        labels = [_class_names(example) for example in examples]
        predicted = [prediction.value for prediction in predictions]
        scores = multi_label_scores(labels, predicted, labels=self.labels)
        return {name: scores[name] for name in self.metrics}

    def check(self, examples: Sequence[TextExample]) -> None:
        """Refuse classes that the task does not have (see `Task.check`)."""
        _check_known(examples, self.labels, _class_names)

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


def _check_known(
    examples: Sequence[TextExample], labels: Sequence[str], names_of: Callable[[TextExample], Sequence[str]]
) -> None:
    known = frozenset(labels)
    for example in examples:
        for name in names_of(example):
            if name not in known:
                raise unknown_label(f"example {example.key}", name, labels)


def _class_name(example: TextExample) -> str:
    if isinstance(example.label, str):
        return example.label
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not the name of a class",
        todo="Choose the task 'regression' for numbers and 'multi_label' for several classes at once.",
    )


def _class_names(example: TextExample) -> tuple[str, ...]:
    if isinstance(example.label, tuple):
        return example.label
    if isinstance(example.label, str):
        return (example.label,)
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not a list of classes",
        todo="Choose the task 'regression' for numbers.",
    )


def _number(example: TextExample) -> float:
    try:
        number = float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise DataError(
            f"example {example.key}: its label {example.label!r} is not a number",
            todo="Mend the row, or choose the task 'classification' for names.",
        )
    return number
