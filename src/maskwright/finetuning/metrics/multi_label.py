"""Measures of examples of which any number of classes hold, by scikit-learn."""

from collections.abc import Iterable, Sequence

import numpy as np

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import BoolArray
from maskwright.finetuning.metrics.libraries import check_pairs, sklearn_metrics


def multi_label_scores(
    gold: Sequence[Iterable[str]], predicted: Sequence[Iterable[str]], *, labels: Sequence[str]
) -> dict[str, float]:
    """Return how well sets of classes are predicted, each score in [0, 1].

    Args:
        gold: The classes that hold, for each example.
        predicted: The ones predicted.
        labels: All classes.

    Returns:
        "micro_f1", of all (example, class) decisions together; "macro_f1", the mean over classes;
        "subset_accuracy", the share of examples of which all classes are right; "f1_LABEL" for each class, 0 where it
        is neither right nor predicted anywhere.

    Example:
        >>> scores = multi_label_scores([["a", "b"], ["a"]], [["a"], ["a"]], labels=["a", "b"])
        >>> {name: round(score, 4) for name, score in scores.items()}
        {'micro_f1': 0.8, 'macro_f1': 0.5, 'subset_accuracy': 0.5, 'f1_a': 1.0, 'f1_b': 0.0}

    Raises:
        DataError: If there are none, numbers differ, or a class is unknown.
    """
    check_pairs(len(gold), len(predicted))
    right, guessed = _table(gold, labels), _table(predicted, labels)
    f1_score = sklearn_metrics().f1_score
    by_label = f1_score(right, guessed, average=None, zero_division=0.0)[: len(labels)]
    return {
        "micro_f1": float(f1_score(right, guessed, average="micro", zero_division=0.0)),
        "macro_f1": float(by_label.mean()),
        "subset_accuracy": float(sklearn_metrics().accuracy_score(right, guessed)),
        **{f"f1_{label}": float(score) for label, score in zip(labels, by_label, strict=True)},
    }


def _table(sets: Sequence[Iterable[str]], labels: Sequence[str]) -> BoolArray:
    columns = {label: column for column, label in enumerate(labels)}
    # One more column that is never true: scikit-learn takes a table of one column for one class an example.
    table = np.zeros((len(sets), len(labels) + 1), dtype=np.bool_)
    for row, classes in enumerate(sets):
        for label in classes:
            if label not in columns:
                problem, allowed, todo = unknown_name("class", label, labels)
                raise DataError(problem, allowed=allowed, todo=todo)
            table[row, columns[label]] = True
    return table
