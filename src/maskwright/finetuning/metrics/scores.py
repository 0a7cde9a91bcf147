"""Scores and reports, by scikit-learn and SciPy (imported on first use: scikit-learn alone takes a second).

Metrics of GLUE: Wang et al. 2019, table 1. Gold and predicted values are of the same examples, one or more.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from maskwright.core.errors import DataError


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of equal labels, in [0, 1]."""
    return sum(label == prediction for label, prediction in zip(gold, predicted, strict=True)) / len(gold)


def comparable(score: float) -> float:
    """Return a score, -inf if it is undefined (NaN: a correlation with equal numbers)."""
    return -math.inf if math.isnan(score) else score


ClassMetric = Literal["accuracy", "f1", "macro_f1", "matthews"]


def class_score(
    metric: ClassMetric, gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str], positive: str
) -> float:
    """Score single classes.

    In [0, 1]: "accuracy"; "f1" of the class `positive` ("1", a paraphrase, in MRPC); "macro_f1", the mean of all
    classes. The F1 of a class that is neither gold nor predicted is 0. In [-1, 1]: "matthews", the correlation
    (Matthews 1975; Gorodkin 2004), 0 if one class is always predicted.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    match metric:
        case "accuracy":
            return accuracy(gold, predicted)
        case "matthews":
            return float(matthews_corrcoef(gold, predicted))
    of = [positive] if metric == "f1" else labels
    return float(f1_score(gold, predicted, labels=of, average="macro", zero_division=0.0))


def multi_label_scores(
    gold: Sequence[Iterable[str]], predicted: Sequence[Iterable[str]], *, labels: Sequence[str]
) -> dict[str, float]:
    """Score sets of two or more classes, each score in [0, 1].

    "micro_f1" of all (example, class) decisions; "macro_f1", the mean over classes; "subset_accuracy", the share of
    examples with all classes correct.
    """
    from sklearn.metrics import f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    indicators = MultiLabelBinarizer(classes=list(labels))
    gold_values, predictions = indicators.fit_transform(gold), indicators.fit_transform(predicted)
    return {
        "micro_f1": float(f1_score(gold_values, predictions, average="micro", zero_division=0.0)),
        "macro_f1": float(f1_score(gold_values, predictions, average="macro", zero_division=0.0)),
        "subset_accuracy": float((gold_values == predictions).all(axis=1).mean()),
    }


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Score numbers.

    "r_squared", the coefficient of determination, at most 1; "pearson" and "spearman", the correlations of numbers and
    of ranks, in [-1, 1]; "mean_absolute_error", in the unit of the numbers.

    DEVIATION: correlations are 0 where one side is constant, and R² where all gold values are the same. SciPy gives NaN
    there, which is not JSON and cannot be compared.
    """
    from scipy import stats

    gold_values, predictions = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    for values, what in ((gold_values, "gold values"), (predictions, "predictions")):
        if not np.isfinite(values).all():
            raise DataError(f"the {what} contain non-finite numbers")
    varies = bool(np.ptp(gold_values) > 0)
    correlates = varies and bool(np.ptp(predictions) > 0)
    residuals = np.square(gold_values - predictions).sum()
    deviations = np.square(gold_values - gold_values.mean()).sum()
    return {
        "r_squared": float(1 - residuals / deviations) if varies else 0.0,
        "pearson": float(stats.pearsonr(gold_values, predictions).statistic) if correlates else 0.0,
        "spearman": float(stats.spearmanr(gold_values, predictions).statistic) if correlates else 0.0,
        "mean_absolute_error": float(np.abs(gold_values - predictions).mean()),
    }


def ranking_scores(queries: Sequence[tuple[Sequence[bool], Sequence[float]]]) -> dict[str, float]:
    """Score rankings of documents: for each query whether each document is relevant, and its predicted score.

    Means over the queries, in [0, 1]: "ndcg@10", the normalized discounted cumulative gain; "mrr@10", the reciprocal
    rank of the first relevant document, 0 below rank 10; "map", the average precision. Queries without a relevant
    document, or without another one, are left out; one must be left. As sentence-transformers'
    CrossEncoderRerankingEvaluator, except for equal scores: relevant documents rank behind the others in "mrr@10" as
    in "map", and NDCG is the mean over their orders.
    """
    from sklearn.metrics import average_precision_score, ndcg_score

    scores: dict[str, list[float]] = {"ndcg@10": [], "mrr@10": [], "map": []}
    for relevant, predicted in queries:
        if len(set(relevant)) == 2:
            order = np.lexsort((np.asarray(relevant), -np.asarray(predicted)))
            first = np.flatnonzero(np.asarray(relevant)[order])[0]
            scores["ndcg@10"].append(ndcg_score([relevant], [predicted], k=10))
            scores["mrr@10"].append(1 / (first + 1) if first < 10 else 0.0)
            scores["map"].append(average_precision_score(relevant, predicted))
    return {name: float(np.mean(values)) for name, values in scores.items()}


class Report(NamedTuple):
    """Scores of each class.

    `by_class` has "precision", "recall" and "f1" in [0, 1], 0 where undefined, and "examples", how many are of this
    class; `confusion` by true class how often each class was predicted.
    """

    by_class: dict[str, dict[str, float]]
    confusion: dict[str, dict[str, int]]


def class_report(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Report:
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    names = ("precision", "recall", "f1", "examples")
    scores = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0.0)
    table = confusion_matrix(gold, predicted, labels=labels).tolist()
    return Report(
        {
            label: dict(zip(names, map(float, row), strict=True))
            for label, row in zip(labels, zip(*scores, strict=True), strict=True)
        },
        {label: dict(zip(labels, row, strict=True)) for label, row in zip(labels, table, strict=True)},
    )
