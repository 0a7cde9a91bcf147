"""Measures of one class an example, all by scikit-learn.

Which task is measured by what is Wang et al. 2019 (GLUE, table 1): Matthews correlation for CoLA, F1 of the positive
class and accuracy for MRPC and QQP, accuracy for the others.
"""

from collections.abc import Sequence

from maskwright.finetuning.metrics.libraries import check_pairs, sklearn_metrics


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of examples whose class is right, in [0, 1].

    Example:
        >>> accuracy(["yes", "no", "no", "no"], ["yes", "no", "yes", "no"])
        0.75

    Raises:
        DataError: If there are none, or numbers differ.
    """
    check_pairs(len(gold), len(predicted))
    return float(sklearn_metrics().accuracy_score(list(gold), list(predicted)))


def binary_f1(gold: Sequence[str], predicted: Sequence[str], *, positive: str) -> float:
    """Return the F1 of one class, in [0, 1]: the harmonic mean of its precision and its recall.

    0 where the class is neither right nor predicted anywhere.

    Args:
        gold: The right classes.
        predicted: The predicted ones.
        positive: The class that is looked for, e.g. "1" (a paraphrase) in MRPC.

    Example:
        >>> round(binary_f1(["1", "1", "0", "0"], ["1", "0", "1", "0"], positive="1"), 2)
        0.5

    Raises:
        DataError: If there are none, or numbers differ.
    """
    return _f1(gold, predicted, [positive])  # The mean over the one class.


def macro_f1(gold: Sequence[str], predicted: Sequence[str], *, labels: Sequence[str]) -> float:
    """Return the mean of the F1 of all classes, in [0, 1].

    A class that is neither right nor predicted anywhere counts as 0.

    Args:
        gold: The right classes.
        predicted: The predicted ones.
        labels: All classes.

    Raises:
        DataError: If there are none, or numbers differ.
    """
    return _f1(gold, predicted, labels)


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the Matthews correlation coefficient, in [-1, 1] (Matthews 1975; for several classes Gorodkin 2004).

    0 where all predictions are of one class.

    Raises:
        DataError: If there are none, or numbers differ.
    """
    check_pairs(len(gold), len(predicted))
    return float(sklearn_metrics().matthews_corrcoef(list(gold), list(predicted)))


def _f1(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> float:
    check_pairs(len(gold), len(predicted))
    score = sklearn_metrics().f1_score(
        list(gold), list(predicted), labels=list(labels), average="macro", zero_division=0.0
    )
    return float(score)
