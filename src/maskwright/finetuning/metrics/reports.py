"""Scores of each class and confusion matrices, by scikit-learn (imported on first use, which takes a second)."""

from collections.abc import Sequence


def class_report(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return "precision", "recall" and "f1" of each class, in [0, 1], and "examples", how often it is gold.

    A score without any example or prediction is 0.

    Example:
        >>> class_report(["a", "b"], ["a", "a"], ["a", "b"])["a"]
        {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666, 'examples': 1.0}
    """
    from sklearn.metrics import precision_recall_fscore_support

    scores = precision_recall_fscore_support(list(gold), list(predicted), labels=list(labels), zero_division=0.0)
    names = ("precision", "recall", "f1", "examples")
    return {
        label: {name: float(value) for name, value in zip(names, row, strict=True)}
        for label, row in zip(labels, zip(*scores, strict=True), strict=True)
    }


def confusion_matrix(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return for each gold class how often each class was predicted.

    Example:
        >>> confusion_matrix(["a", "b"], ["a", "a"], ["a", "b"])
        {'a': {'a': 1, 'b': 0}, 'b': {'a': 1, 'b': 0}}
    """
    from sklearn.metrics import confusion_matrix as count

    table = count(list(gold), list(predicted), labels=list(labels)).tolist()
    return {label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, table, strict=True)}
