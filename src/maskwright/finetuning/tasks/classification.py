"""Tasks on single texts or pairs of texts: one class, several classes (multi-label), or a number (regression).

Each example is one sequence and one unit. If a pair is too long, tokens are removed one at a time from the end of the
longer text (google-research/bert, run_classifier.py, `_truncate_seq_pair`); a single text is truncated at its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import DTypeLike
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureBatch, Features, Ranges, cut_pairs, lay_out, ranges_of, room
from maskwright.finetuning.metrics.scores import (
    accuracy,
    binary_f1,
    macro_f1,
    matthews,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    r_squared,
    spearman,
)
from maskwright.finetuning.tasks.base import (
    Prediction,
    Scores,
    Task,
    as_json,
    check_labels,
    check_metrics,
    learnable,
    number_of,
    require_labels,
    rows,
    softmax,
    sorted_labels,
    unknown_label,
    unknown_label_of,
)


def text_features(
    examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool
) -> Features:
    """Lay out texts and pairs as sequences, one per unit, without labels (arguments: see `Task.features`).

    Raises:
        DataError: If `max_length` leaves no space for text.
    """
    pairs = np.array([len(example.texts) == 2 for example in examples], dtype=bool)
    single_room = room(tokenizer, max_length, pair=False)
    pair_room = room(tokenizer, max_length, pair=True, needed=2) if pairs.any() else 0
    stream = StreamEncoder(tokenizer).encode([text for example in examples for text in example.texts])
    texts = ranges_of(stream.lengths)
    begins = np.concatenate([[0], np.cumsum(1 + pairs)])[:-1].astype(np.int64)
    first = texts.pick(begins)
    second = texts.pick(begins + pairs)
    second = Ranges(second.starts, np.where(pairs, second.ends, second.starts))
    of_first, of_second = cut_pairs(first.lengths, second.lengths, pair_room)
    of_first = np.where(pairs, of_first, np.minimum(first.lengths, single_room))
    of_second = np.where(pairs, of_second, 0)
    is_cut = (of_first < first.lengths) | (of_second < second.lengths)
    laid = lay_out(
        stream.ids, first.first(of_first), second.first(of_second), tokenizer, segments=segments, pairs=pairs
    )
    numbers = np.arange(len(examples), dtype=np.int64)
    return Features(
        ids=laid.ids,
        segment_ids=laid.segment_ids,
        cu_seqlens=laid.cu_seqlens,
        units=numbers,
        examples=numbers,
        num_cut=int(np.count_nonzero(is_cut)),
    )


def features_of_texts(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    segments: bool,
    training: bool,
    target: Callable[[TextExample], Any],
    dtype: DTypeLike,
    check: Callable[[Sequence[TextExample]], None] = lambda _: None,
) -> Features:
    """Lay out texts and pairs as sequences; in training only labeled ones, with targets.

    `target` returns an example's target; `check` raises if a label is not the task's.

    Raises:
        DataError: If `max_length` leaves no space; in training, if no example has a label, or one has a wrong label.
    """
    if not training:
        return text_features(examples, tokenizer, max_length=max_length, segments=segments)
    chosen = learnable(examples)
    kept = [examples[number] for number in chosen.tolist()]
    check(kept)
    targets = np.array([target(example) for example in kept], dtype=dtype)
    features = text_features(kept, tokenizer, max_length=max_length, segments=segments)
    return replace(features, examples=chosen, labels=targets)


def one_row_each(scores: Sequence[Scores], features: Features, examples: Sequence[TextExample]) -> Scores:
    """Return the scores as one float64 array (examples, C)."""
    if not len(scores) == features.num_units == len(examples):
        raise ValueError(f"{len(scores)} scores for {len(examples)} examples: predict with features made for scoring")
    return np.stack(scores).astype(np.float64)


def check_classes(
    examples: Sequence[TextExample],
    labels: Sequence[str],
    names_of: Callable[[TextExample], Sequence[str]],
    *,
    one_each: bool = True,
) -> None:
    """Raise `DataError` for the first example with a class that the task does not have."""
    known = frozenset(labels)
    for example in examples:
        for name in names_of(example):
            if name not in known:
                raise unknown_label_of(example.key, name, labels, one_each=one_each)


CLASSIFICATION_METRICS = ("accuracy", "f1", "macro_f1", "matthews")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Classification(Task[TextExample]):
    """One of several classes for a text or a pair.

    Attributes:
        labels: Names of the classes, two or more.
        metrics: Reported metrics, the main one first: "accuracy", "f1" (of the class `positive`), "macro_f1" (mean F1
            of all classes), "matthews" (correlation).
        positive: The class that "f1" refers to; None for the second of two.
    """

    kind: ClassVar[str] = "classification"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    positive: str | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels)
        check_metrics(self.metrics, CLASSIFICATION_METRICS, self.kind)
        if self.positive is not None and self.positive not in self.labels:
            raise unknown_label("the task's positive class", self.positive, self.labels)
        if "f1" in self.metrics and self.positive is None and len(self.labels) > 2:
            raise DataError(
                f"the metric 'f1' is of one class, and there are {len(self.labels)}",
                allowed="a class named in `positive`, or the metric 'macro_f1'",
            )

    @classmethod
    def for_examples(cls, examples: Sequence[TextExample], **fields: Any) -> Self:
        """Make a task with the classes of the training examples.

        Raises:
            DataError: If they have fewer than two classes, or labels of another kind.
        """
        found = {_class_name(example) for example in examples if example.label is not None}
        return cls(labels=sorted_labels(found), **fields)

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer (see `Task.num_outputs`)."""
        return len(self.labels)

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Lay out examples as sequences (see `Task.features`)."""
        numbers = number_of(self.labels)
        return features_of_texts(
            examples,
            tokenizer,
            max_length=max_length,
            segments=segments,
            training=training,
            target=lambda example: numbers[_class_name(example)],
            dtype=np.int64,
            check=self.check,
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed cross entropy and the number of units (see `Task.loss`)."""
        assert batch.labels is not None
        return F.cross_entropy(scores, batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Split scores into one array (C,) per unit."""
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
        """Raise on classes that the task does not have (see `Task.check`)."""
        check_classes(examples, self.labels, lambda example: (_class_name(example),))


def _class_name(example: TextExample) -> str:
    if isinstance(example.label, str):
        return example.label
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not the name of a class",
        todo="Choose the task 'regression' for numbers and 'multi_label' for several classes at once.",
    )


_LESS_IS_BETTER = "mean_absolute_error"
REGRESSION_METRICS = ("r_squared", "pearson", "spearman", _LESS_IS_BETTER)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Task[TextExample]):
    """A number for a text or a pair, trained with squared error.

    Attributes:
        metrics: Reported metrics, the main one first: "r_squared" (share of explained variance), "pearson", "spearman"
            (correlations, which do not notice a constant bias or scale); besides, "mean_absolute_error" (lower is
            better, so it cannot be the main one).
        offset: Subtracted from targets in training, added to outputs in prediction.
        scale: Targets minus offset are divided by it in training, outputs multiplied in prediction: ELECTRA scales
            STS-B's 0 to 5 to 0 to 1 (electra: configure_finetuning.py), BERT and RoBERTa do not.
        bounds: Smallest and largest value; predictions are clipped to them. None for no bounds. Metrics use the
            unclipped outputs, as GLUE's systems did: clipping creates ties.
    """

    kind: ClassVar[str] = "regression"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...] = field(default=(), init=False)
    metrics: tuple[str, ...] = REGRESSION_METRICS
    offset: float = 0.0
    scale: float = 1.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics, REGRESSION_METRICS, self.kind)
        if self.metrics[0] == _LESS_IS_BETTER:
            raise DataError(
                f"the main metric of a regression is {self.metrics[0]!r}, where lower is better",
                allowed=f"as the first one: {', '.join(REGRESSION_METRICS[:-1])}",
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
        """Width of the head's last layer (see `Task.num_outputs`)."""
        return 1

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Lay out examples as sequences (see `Task.features`)."""
        return features_of_texts(
            examples,
            tokenizer,
            max_length=max_length,
            segments=segments,
            training=training,
            target=lambda example: (_number(example) - self.offset) / self.scale,
            dtype=np.float32,
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed squared error of the scaled numbers, and the number of units."""
        assert batch.labels is not None
        return F.mse_loss(scores.squeeze(1), batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Split scores into one array (1,) per unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Predict a number per example, clipped to `bounds`; `details["unbounded"]` holds the output if it differs."""
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
        """Raise on labels that are not numbers, or all equal: correlations are then undefined."""
        if len({_number(example) for example in examples}) < 2:
            raise DataError(
                "all numbers are equal, so that correlations are undefined",
                allowed="at least two different numbers",
                todo="If they were held out of few training examples, name another file with `--dev FILE`.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        plain = as_json(self)
        if not self.offset:  # Runs started before `offset` existed resume.
            del plain["offset"]
        return plain


def _number(example: TextExample) -> float:
    try:
        number = float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise DataError(
            f"example {example.key}: its label {example.label!r} is not a number",
            todo="Correct the row, or choose the task 'classification' for class names.",
        )
    return number


MULTI_LABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLabel(Task[TextExample]):
    """Any number of classes for a text or a pair, predicted independently.

    Attributes:
        labels: Names of the classes.
        metrics: Reported metrics, the main one first: "micro_f1" (over all decisions), "macro_f1" (mean F1 of the
            classes), "subset_accuracy" (share of examples with exactly the right set), "f1_LABEL" (of one class).
        threshold: Minimum probability of a predicted class, in (0, 1).
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
        """Make a task with the classes of the training examples.

        Raises:
            DataError: If they have fewer than two classes, or labels of another kind.
        """
        found = {name for example in examples if example.label is not None for name in _class_names(example)}
        return cls(labels=sorted_labels(found), **fields)

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer (see `Task.num_outputs`)."""
        return len(self.labels)

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Lay out examples as sequences (see `Task.features`)."""

        def target(example: TextExample) -> list[bool]:
            names = _class_names(example)
            return [label in names for label in self.labels]

        return features_of_texts(
            examples,
            tokenizer,
            max_length=max_length,
            segments=segments,
            training=training,
            target=target,
            dtype=np.float32,
            check=self.check,
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the binary cross entropy, the mean of the classes summed over units, and the number of units.

        Divided by the units this is transformers' loss of a multi-label model: the mean over units and classes.
        """
        assert batch.labels is not None
        total = F.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum")
        return total / len(self.labels), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Split scores into one array (C,) per unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Predict each example's classes; the score is the probability of exactly this set, classes independent."""
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
        """Raise on classes that the task does not have (see `Task.check`)."""
        check_classes(examples, self.labels, _class_names, one_each=False)


def _class_names(example: TextExample) -> tuple[str, ...]:
    if isinstance(example.label, tuple):
        return example.label
    if isinstance(example.label, str):
        return (example.label,)
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not a list of classes",
        todo="Choose the task 'regression' for numbers.",
    )
