"""Tasks on single texts or pairs of texts: one class, several classes (multi-label), or a number (regression).

Each example is one sequence and one unit. If a pair is too long, tokens are removed one at a time from the end of the
longer text (google-research/bert, run_classifier.py, `_truncate_seq_pair`); a single text is truncated at its end. In
prediction a long text may be read in overlapping windows instead (`Layout.windows`): several units, whose probabilities
or numbers are averaged.
"""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import DTypeLike
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.ranges import Ranges, cut_windows, ranges_of
from maskwright.core.types import BoolArray, HeadKind, IntArray
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureBatch, Features, Layout, cut_pairs, encode_distinct, lay_out
from maskwright.finetuning.metrics.scores import (
    ClassMetric,
    Report,
    class_report,
    class_score,
    multi_label_scores,
    number_scores,
)
from maskwright.finetuning.readers.options import as_name
from maskwright.finetuning.tasks.base import (
    AS_NAMES,
    NOT_EMPTY,
    Prediction,
    Scores,
    Task,
    constant_on,
    sigmoid,
    softmax,
    sorted_labels,
    unknown_label,
    unmapped_label,
)
from maskwright.fitting.rules import Choice, Rule, apply_rules, round_digits

Decoded = tuple[Any, float | None, dict[str, Any]]
"""Value, score and details of a prediction."""


class TextTask(Task):
    """A task whose examples are texts or pairs of texts."""

    head: ClassVar[HeadKind] = "sequence"
    target_type: ClassVar[DTypeLike]

    @abstractmethod
    def target(self, example: TextExample) -> Any:
        """Return the label of an example as the loss needs it."""

    @abstractmethod
    def activate(self, scores: Scores) -> Scores:
        """Return probabilities or numbers for scores (U, C) in float64."""

    def describe(self, values: Scores) -> list[Decoded]:
        """Return the predictions for activated scores, one row per example; here a number."""
        return [(number, None, {}) for number in values[:, 0].tolist()]

    def features(self, examples: Sequence[TextExample], layout: Layout, *, training: bool) -> Features:
        labels = np.array([self.target(example) for example in examples], dtype=self.target_type) if training else None
        pairs = np.array([len(example.texts) == 2 for example in examples], dtype=bool)
        longest = np.full(len(examples), layout.text_tokens(pair=False))
        if pairs.any():
            longest[pairs] = layout.text_tokens(pair=True)
        # A query is encoded once for all its documents.
        ids, texts = encode_distinct((text for example in examples for text in example.texts), layout.tokenizer)
        begins = np.cumsum(1 + pairs) - (1 + pairs)
        first, second = texts.pick(begins), texts.pick(begins + pairs)
        second = Ranges(second.starts, np.where(pairs, second.ends, second.starts))
        if layout.windows:
            return _windows(ids, first, second, longest, layout, pairs)
        of_first, of_second = cut_pairs(first.lengths, second.lengths, longest)
        is_truncated = (of_first < first.lengths) | (of_second < second.lengths)
        laid = lay_out(ids, first.first(of_first), second.first(of_second), layout, pairs)
        return replace(laid, labels=labels, truncated=np.flatnonzero(is_truncated))

    def decode(self, scores: Scores, features: Features, examples: Sequence[TextExample]) -> list[Prediction]:
        values = self.activate(scores.astype(np.float64))
        windows = ranges_of(np.bincount(features.examples, minlength=len(examples)))
        values = np.add.reduceat(values, windows.starts, axis=0) / windows.lengths[:, None]
        return [
            Prediction(key=example.key, value=value, score=score, details=details)
            for example, (value, score, details) in zip(examples, self.describe(values), strict=True)
        ]

    def check(self, examples: Sequence[TextExample]) -> None:
        for example in examples:
            self.target(example)


@final
class Classification(TextTask):
    """One of several classes for a text or a pair.

    Attributes:
        labels: Names of the classes, two or more.
        metrics: Reported metrics, the main one first: "accuracy", "f1" (of the class `positive`), "macro_f1" (mean F1
            of all classes), "matthews" (correlation).
        positive: The class that "f1" refers to; None for the second of two.
        class_weights: Weight of each class in the loss, in the order of `labels`; "balanced": inversely proportional
            to its share of the training examples, 1 on average over them; empty: all 1.
    """

    label_word: ClassVar[str] = "label"
    target_type: ClassVar[DTypeLike] = np.int64
    kind: Literal["classification"] = "classification"
    metrics: Annotated[tuple[ClassMetric, ...], AS_NAMES, NOT_EMPTY] = ("accuracy",)
    positive: Annotated[str | None, BeforeValidator(as_name)] = None
    class_weights: Literal["balanced"] | tuple[Annotated[float, Field(gt=0)], ...] = ()

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if self.positive is not None and self.positive not in self.labels:
            raise unknown_label("the task's positive class", self.positive, self.labels)
        if "f1" in self.metrics and self.positive is None and len(self.labels) > 2:
            raise DataError(
                f"the metric 'f1' is of one class, and there are {len(self.labels)}",
                allowed="a class named in `positive`, or the metric 'macro_f1'",
            )
        if self.class_weights not in ("balanced", ()) and len(self.class_weights) != len(self.labels):
            raise DataError(
                f"{len(self.class_weights)} class weights for {len(self.labels)} classes",
                allowed=f'"balanced", or a weight for each of {", ".join(self.labels)}',
            )
        return self

    @classmethod
    def infer_fields(cls, examples: Sequence[TextExample]) -> dict[str, Any]:
        return {"labels": sorted_labels(example.label for example in examples)}

    def fitted(self, examples: Sequence[TextExample], fixed: Collection[str]) -> tuple[Self, tuple[Choice, ...]]:
        """Replace balanced class weights by numbers: examples / (classes x examples of the class), as scikit-learn."""
        if self.class_weights != "balanced":
            return self, ()
        counts = Counter(example.label for example in examples)
        # A class without training examples has no loss.
        weights = tuple(
            round_digits(len(examples) / (len(counts) * counts[label]), 4) if counts[label] else 1.0
            for label in self.labels
        )
        rule: Rule[None] = Rule("class_weights", lambda _: weights, "inversely proportional to the classes' shares")
        return apply_rules(self, [rule], None, prefix="task.")

    def target(self, example: TextExample) -> int:
        name = example.label
        if name not in self.labels:
            raise unmapped_label(example.location, name, self.labels)
        return self.labels.index(name)

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        assert self.class_weights != "balanced", "`fitted` makes numbers of it"
        weight = constant_on(scores.device, self.class_weights) if self.class_weights else None
        return F.cross_entropy(scores, labels, weight, reduction="sum")

    def activate(self, scores: Scores) -> Scores:
        return softmax(scores)

    def describe(self, values: Scores) -> list[Decoded]:
        """Predict the most probable class; details hold the probabilities of all."""
        return [
            (self.labels[np.argmax(row)], max(row), {"probabilities": dict(zip(self.labels, row, strict=True))})
            for row in values.tolist()
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        gold, predicted = _values(predictions, examples)
        positive = self.labels[1] if self.positive is None else self.positive
        return {
            name: class_score(name, gold, predicted, labels=self.labels, positive=positive) for name in self.metrics
        }

    def report(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> Report:
        return class_report(*_values(predictions, examples), self.labels)


def _windows(
    ids: IntArray, first: Ranges, second: Ranges, longest: IntArray, layout: Layout, pairs: BoolArray
) -> Features:
    """Lay out texts and pairs of more than `longest` tokens, (B,), as several sequences.

    Of a pair the longer text is cut into windows; each has all of the shorter one, or what of it fits into half of
    a sequence. `second` is empty where there is no pair.
    """
    is_first = first.lengths >= second.lengths
    longer, untruncated = Ranges.where(is_first, first, second), Ranges.where(is_first, second, first)
    shorter = untruncated.first(longest // 2)
    examples, windows = cut_windows(longer, longest - shorter.lengths)
    repeated, is_first = shorter.pick(examples), is_first[examples]
    laid = lay_out(
        ids,
        Ranges.where(is_first, windows, repeated),
        Ranges.where(is_first, repeated, windows),
        layout,
        pairs[examples],
    )
    return replace(laid, examples=examples, truncated=np.flatnonzero(shorter.lengths < untruncated.lengths))


def _values(predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> tuple[list[Any], list[Any]]:
    return [example.label for example in examples], [prediction.value for prediction in predictions]


@final
class Regression(TextTask):
    """A number for a text or a pair, trained with squared error.

    Attributes:
        metrics: Reported metrics, the main one first: "r_squared" (share of explained variance), "pearson", "spearman"
            (correlations, which do not notice a constant bias or scale); besides, "mean_absolute_error" (lower is
            better, so it cannot be the main one).
        offset: Subtracted from targets in training, added to outputs in prediction.
        scale: Targets minus offset are divided by it in training, outputs multiplied in prediction: ELECTRA scales
            STS-B's 0 to 5 to 0 to 1 (electra: configure_finetuning.py), BERT and RoBERTa do not.
    """

    target_type: ClassVar[DTypeLike] = np.float32
    kind: Literal["regression"] = "regression"
    metrics: Annotated[
        tuple[Literal["r_squared", "pearson", "spearman", "mean_absolute_error"], ...], AS_NAMES, NOT_EMPTY
    ] = ("r_squared", "pearson", "spearman", "mean_absolute_error")
    offset: float = 0.0
    scale: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _check_main_metric(self) -> Self:
        if self.metrics[0] == "mean_absolute_error":
            raise DataError(
                f"the main metric of a regression is {self.metrics[0]!r}, where lower is better",
                allowed="as the first one: r_squared, pearson, spearman",
            )
        return self

    def fitted(self, examples: Sequence[TextExample], fixed: Collection[str]) -> tuple[Self, tuple[Choice, ...]]:
        """Standardize the targets; if `offset` or `scale` is fixed, both are kept.

        Outputs start near 0 and change little per step, so that prices in thousands would not be reached, which
        correlations do not show.
        """
        labels = [example.label for example in examples]
        scale = round_digits(float(np.std(labels)), 3)
        if scale == 0.0 or {"offset", "scale"} & set(fixed):  # All targets are equal: reported in `Task.check`.
            return self, ()
        # Rounded to a hundredth of the scale.
        offset = round(float(np.mean(labels)), 2 - math.floor(math.log10(scale)))
        rules: list[Rule[None]] = [
            Rule("offset", offset, "mean of the training values: targets are standardized"),
            Rule("scale", scale, "standard deviation of the training values"),
        ]
        return apply_rules(self, rules, None, prefix="task.")

    def target(self, example: TextExample) -> float:
        return float((example.label - self.offset) / self.scale)

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        return F.mse_loss(scores.squeeze(1), labels, reduction="sum")

    def activate(self, scores: Scores) -> Scores:
        return scores * self.scale + self.offset

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        scores = number_scores(*_values(predictions, examples))
        return {name: scores[name] for name in self.metrics}

    def check(self, examples: Sequence[TextExample]) -> None:
        """Raise on labels that are not numbers, or all equal: correlations are then undefined."""
        if len({example.label for example in examples}) < 2:
            raise DataError(
                "all numbers are equal, so that correlations are undefined",
                allowed="at least two different numbers",
                hint="If they were held out of few training examples, name another file with `--dev FILE`.",
            )


@final
class MultiLabel(TextTask):
    """Any number of classes for a text or a pair, predicted independently.

    Attributes:
        labels: Names of the classes.
        metrics: Reported metrics, the main one first: "micro_f1" (over all decisions), "macro_f1" (mean F1 of the
            classes), "subset_accuracy" (share of examples with exactly the right set).
        threshold: Minimum probability of a predicted class, in (0, 1).
    """

    label_word: ClassVar[str] = "label"
    target_type: ClassVar[DTypeLike] = np.float32
    kind: Literal["multi_label"] = "multi_label"
    metrics: Annotated[tuple[Literal["micro_f1", "macro_f1", "subset_accuracy"], ...], AS_NAMES, NOT_EMPTY] = (
        "micro_f1",
        "macro_f1",
        "subset_accuracy",
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5

    @classmethod
    def infer_fields(cls, examples: Sequence[TextExample]) -> dict[str, Any]:
        return {"labels": sorted_labels(name for example in examples for name in example.label)}

    def target(self, example: TextExample) -> list[bool]:
        names = example.label
        for name in names:
            if name not in self.labels:
                raise unmapped_label(example.location, name, self.labels)
        return [label in names for label in self.labels]

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        """Return the binary cross entropy, the mean of the classes summed over units.

        Divided by the units this is transformers' loss of a multi-label model: the mean over units and classes.
        """
        return F.binary_cross_entropy_with_logits(scores, labels, reduction="sum") / len(self.labels)

    def activate(self, scores: Scores) -> Scores:
        return sigmoid(scores)

    def describe(self, values: Scores) -> list[Decoded]:
        """Predict each example's classes; the score is the probability of exactly this set, classes independent."""
        predicted = values >= self.threshold
        of_set = np.where(predicted, values, 1 - values).prod(axis=1).tolist()
        return [
            (
                [label for label, chosen in zip(self.labels, mask, strict=True) if chosen],
                score,
                {"probabilities": dict(zip(self.labels, row, strict=True))},
            )
            for mask, score, row in zip(predicted.tolist(), of_set, values.tolist(), strict=True)
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        scores = multi_label_scores(*_values(predictions, examples), labels=self.labels)
        return {name: scores[name] for name in self.metrics}

    def report(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> Report:
        by_class = {}
        for label in self.labels:
            gold = [str(label in example.label) for example in examples]
            predicted = [str(label in prediction.value) for prediction in predictions]
            by_class[label] = class_report(gold, predicted, ["True", "False"]).by_class["True"]
        return Report(by_class, {})
