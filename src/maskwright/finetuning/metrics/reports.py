"""Scores of each class and confusion matrices, by scikit-learn (imported on first use, which takes a second)."""

from collections.abc import Sequence
from typing import NamedTuple


class Report(NamedTuple):
    """How well each class is predicted.

    Attributes:
        by_class: By class, "precision", "recall" and "f1" in [0, 1], 0 where undefined, and "examples", how many are
            of this class.
        confusion: By true class, how often each class was predicted.
    """

    by_class: dict[str, dict[str, float]]
    confusion: dict[str, dict[str, int]]


def class_report(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Report:
    """Return the scores of each class and the confusion matrix.

    Example:
        >>> class_report(["a", "b"], ["a", "a"], ["a", "b"])
        Report(by_class={'a': {'precision': 0.5, 'recall': 1.0, ...}, ...}, confusion={'a': {'a': 1, 'b': 0}, ...})
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    names = ("precision", "recall", "f1", "examples")
    scores = precision_recall_fscore_support(list(gold), list(predicted), labels=list(labels), zero_division=0.0)
    table = confusion_matrix(list(gold), list(predicted), labels=list(labels)).tolist()
    return Report(
        {
            label: dict(zip(names, map(float, row), strict=True))
            for label, row in zip(labels, zip(*scores, strict=True), strict=True)
        },
        {label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, table, strict=True)},
    )
