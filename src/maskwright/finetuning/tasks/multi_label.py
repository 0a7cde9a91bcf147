"""Any number of classes for a text or a pair of texts."""

from collections.abc import Sequence
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
from maskwright.finetuning.metrics.multi_label import multi_label_scores
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.parts import (
    as_json,
    check_labels,
    check_metrics,
    require_labels,
    rows,
    sorted_labels,
)
from maskwright.finetuning.tasks.texts import check_classes, features_of_texts, one_row_each

METRICS = ("micro_f1", "macro_f1", "subset_accuracy")


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
    metrics: tuple[str, ...] = METRICS
    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_labels(self.labels)
        check_metrics(self.metrics, (*METRICS, *(f"f1_{label}" for label in self.labels)), self.kind)
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
        check_classes(examples, self.labels, _class_names, one_each=False)

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        return as_json(self)


def _class_names(example: TextExample) -> tuple[str, ...]:
    if isinstance(example.label, tuple):
        return example.label
    if isinstance(example.label, str):
        return (example.label,)
    raise DataError(
        f"example {example.key}: its label {example.label!r} is not a list of classes",
        todo="Choose the task 'regression' for numbers.",
    )
