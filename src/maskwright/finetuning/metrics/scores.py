"""Scores of classes and numbers, by scikit-learn and SciPy (imported on first use: scikit-learn alone takes a second).

Metrics of GLUE: Wang et al. 2019, table 1. Every function raises DataError if there is nothing to measure or the
numbers of values differ.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError, unknown_name
from maskwright.core.types import BoolArray


def check_pairs(gold: int, predicted: int, at_least: int = 1) -> None:
    """Raise DataError if the numbers of gold and predicted values differ or are too small."""
    if gold != predicted:
        raise DataError(f"{predicted} predictions cannot be measured against {gold} gold values")
    if gold < at_least:
        raise DataError(
            f"there are {gold} labeled examples to measure", allowed=f"{at_least} or more", todo="Check the file."
        )


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of examples with the right class, in [0, 1].

    Example:
        >>> accuracy(["yes", "no", "no", "no"], ["yes", "no", "yes", "no"])
        0.75
    """
    check_pairs(len(gold), len(predicted))
    return sum(right == guess for right, guess in zip(gold, predicted, strict=True)) / len(gold)


def binary_f1(gold: Sequence[str], predicted: Sequence[str], *, positive: str) -> float:
    """Return the F1 of one class ("1", a paraphrase, in MRPC), in [0, 1]; 0 where it is neither gold nor predicted."""
    return macro_f1(gold, predicted, labels=[positive])


def macro_f1(gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]) -> float:
    """Return the mean F1 of all classes, in [0, 1]; a class that is neither gold nor predicted counts as 0."""
    from sklearn.metrics import f1_score

    check_pairs(len(gold), len(predicted))
    return float(f1_score(list(gold), list(predicted), labels=list(labels), average="macro", zero_division=0.0))


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the Matthews correlation coefficient, in [-1, 1] (Matthews 1975; several classes: Gorodkin 2004).

    0 where all predictions are of one class.
    """
    from sklearn.metrics import matthews_corrcoef

    check_pairs(len(gold), len(predicted))
    return float(matthews_corrcoef(list(gold), list(predicted)))


def multi_label_scores(
    gold: Sequence[Iterable[str]], predicted: Sequence[Iterable[str]], *, labels: Sequence[str]
) -> dict[str, float]:
    """Score sets of classes, each score in [0, 1].

    Returns:
        "micro_f1" of all (example, class) decisions; "macro_f1", the mean over classes; "subset_accuracy", the share of
        examples with all classes right; "f1_LABEL" of each class, 0 where it is neither gold nor predicted.

    Example:
        >>> scores = multi_label_scores([["a", "b"], ["a"]], [["a"], ["a"]], labels=["a", "b"])
        >>> {name: round(score, 4) for name, score in scores.items()}
        {'micro_f1': 0.8, 'macro_f1': 0.5, 'subset_accuracy': 0.5, 'f1_a': 1.0, 'f1_b': 0.0}
    """
    from sklearn.metrics import f1_score

    check_pairs(len(gold), len(predicted))
    right, guessed = _indicators(gold, labels), _indicators(predicted, labels)
    by_label = f1_score(right, guessed, average=None, zero_division=0.0)[: len(labels)]
    return {
        "micro_f1": float(f1_score(right, guessed, average="micro", zero_division=0.0)),
        "macro_f1": float(by_label.mean()),
        "subset_accuracy": float((right == guessed).all(axis=1).mean()),
        **{f"f1_{label}": float(score) for label, score in zip(labels, by_label, strict=True)},
    }


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Pearson's correlation, in [-1, 1].

    DEVIATION: 0 where one side is constant. SciPy gives NaN there, which is not JSON and cannot be compared.
    """
    return _correlation("pearsonr", gold, predicted)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Spearman's rank correlation, in [-1, 1]. DEVIATION: 0 where one side is constant, as in `pearson`."""
    return _correlation("spearmanr", gold, predicted)


def mean_absolute_error(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the mean absolute error, in the unit of the numbers."""
    right, guessed = _finite(gold, predicted, at_least=1)
    return float(np.abs(right - guessed).mean())


def r_squared(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the coefficient of determination R², at most 1. DEVIATION: 0 where all gold values are the same."""
    right, guessed = _finite(gold, predicted, at_least=2)
    if right.min() == right.max():
        return 0.0
    return float(1 - np.square(right - guessed).sum() / np.square(right - right.mean()).sum())


def _correlation(function: str, gold: Sequence[float], predicted: Sequence[float]) -> float:
    from scipy import stats

    right, guessed = _finite(gold, predicted, at_least=2)
    if any(values.min() == values.max() for values in (right, guessed)):
        return 0.0
    return float(getattr(stats, function)(right, guessed).statistic)


def _finite(
    gold: Sequence[float], predicted: Sequence[float], at_least: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    check_pairs(len(gold), len(predicted), at_least)
    right, guessed = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    for values, what in ((right, "gold values"), (guessed, "predictions")):
        if not np.isfinite(values).all():
            raise DataError(f"the {what} contain non-finite numbers")
    return right, guessed


def _indicators(sets: Sequence[Iterable[str]], labels: Sequence[str]) -> BoolArray:
    columns = {label: column for column, label in enumerate(labels)}
    # The last column is always False: scikit-learn would read a single column as one class per example.
    table = np.zeros((len(sets), len(labels) + 1), dtype=np.bool_)
    for row, classes in enumerate(sets):
        for label in classes:
            if label not in columns:
                problem, allowed, todo = unknown_name("class", label, labels)
                raise DataError(problem, allowed=allowed, todo=todo)
            table[row, columns[label]] = True
    return table
