"""One of several classes for a text or a pair of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.finetuning.metrics.classification import accuracy, binary_f1, macro_f1, matthews
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.parts import (
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
from maskwright.finetuning.tasks.texts import check_classes, features_of_texts, one_row_each

METRICS = ("accuracy", "f1", "macro_f1", "matthews")


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
        check_metrics(self.metrics, METRICS, self.kind)
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
        check_classes(examples, self.labels, lambda example: (_class_name(example),))

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


def _class_name(example: TextExample) -> str:
    if isinstance(example.label, str):
        return example.label
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not the name of a class",
        todo="Choose the task 'regression' for numbers and 'multi_label' for several classes at once.",
    )
