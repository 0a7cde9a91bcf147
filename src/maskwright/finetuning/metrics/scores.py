"""Scores and reports, by scikit-learn and SciPy (imported on first use: scikit-learn alone takes a second).

Metrics of GLUE: Wang et al. 2019, table 1. Gold and predicted values are of the same examples, one or more.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of examples with the right class, in [0, 1]."""
    return sum(right == guess for right, guess in zip(gold, predicted, strict=True)) / len(gold)


def binary_f1(gold: Sequence[str], predicted: Sequence[str], *, positive: str) -> float:
    """Return the F1 of one class ("1", a paraphrase, in MRPC), in [0, 1]; 0 where it is neither gold nor predicted."""
    return macro_f1(gold, predicted, labels=[positive])


def macro_f1(gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]) -> float:
    """Return the mean F1 of all classes, in [0, 1]; a class that is neither gold nor predicted counts as 0."""
    from sklearn.metrics import f1_score

    return float(f1_score(list(gold), list(predicted), labels=list(labels), average="macro", zero_division=0.0))


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the Matthews correlation in [-1, 1] (Matthews 1975; Gorodkin 2004); 0 if one class is always predicted."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(list(gold), list(predicted)))


def multi_label_scores(
    gold: Sequence[Iterable[str]], predicted: Sequence[Iterable[str]], *, labels: Sequence[str]
) -> dict[str, float]:
    """Score sets of two or more classes, each score in [0, 1].

    "micro_f1" of all (example, class) decisions; "macro_f1", the mean over classes; "subset_accuracy", the share of
    examples with all classes right.
    """
    from sklearn.metrics import f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    indicators = MultiLabelBinarizer(classes=list(labels))
    right, guessed = indicators.fit_transform(gold), indicators.fit_transform(predicted)
    return {
        "micro_f1": float(f1_score(right, guessed, average="micro", zero_division=0.0)),
        "macro_f1": float(f1_score(right, guessed, average="macro", zero_division=0.0)),
        "subset_accuracy": float((right == guessed).all(axis=1).mean()),
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
    right, guessed = _finite(gold, predicted)
    return float(np.abs(right - guessed).mean())


def r_squared(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the coefficient of determination R², at most 1. DEVIATION: 0 where all gold values are the same."""
    right, guessed = _finite(gold, predicted)
    if right.min() == right.max():
        return 0.0
    return float(1 - np.square(right - guessed).sum() / np.square(right - right.mean()).sum())


def _correlation(function: str, gold: Sequence[float], predicted: Sequence[float]) -> float:
    from scipy import stats

    right, guessed = _finite(gold, predicted)
    if any(values.min() == values.max() for values in (right, guessed)):
        return 0.0
    return float(getattr(stats, function)(right, guessed).statistic)


def _finite(gold: Sequence[float], predicted: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    right, guessed = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    for values, what in ((right, "gold values"), (guessed, "predictions")):
        if not np.isfinite(values).all():
            raise DataError(f"the {what} contain non-finite numbers")
    return right, guessed


class Report(NamedTuple):
    """How well each class is predicted.

    `by_class` has "precision", "recall" and "f1" in [0, 1], 0 where undefined, and "examples", how many are of this
    class; `confusion` by true class how often each class was predicted.
    """

    by_class: dict[str, dict[str, float]]
    confusion: dict[str, dict[str, int]]


def class_report(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Report:
    """Return the scores of each class and the confusion matrix."""
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
