"""Measures of one number an example; correlations, by which STS-B is measured (Wang et al. 2019, table 1), by SciPy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.finetuning.metrics.libraries import check_pairs, scipy_stats


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Pearson's correlation, in [-1, 1]: how near the predictions are to a line through the right numbers.

    DEVIATION: 0 where one side is the same number throughout. Correlation is not defined there, and SciPy gives NaN,
    which is greater than no other score and no JSON; a model that says the same of everything has told nothing.

    Example:
        >>> round(pearson([1, 2, 3], [2.0, 4.0, 6.0]), 6)
        1.0

    Raises:
        DataError: If there are fewer than two, numbers differ, or one is not finite.
    """
    return _correlation("pearsonr", gold, predicted)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return Spearman's correlation, in [-1, 1]: Pearson's of the ranks, equal numbers sharing their mean rank.

    DEVIATION: 0 where one side is the same number throughout, as in `pearson`.

    Example:
        >>> round(spearman([1, 2, 3], [2.0, 4.0, 600.0]), 6)
        1.0

    Raises:
        DataError: If there are fewer than two, numbers differ, or one is not finite.
    """
    return _correlation("spearmanr", gold, predicted)


def mean_absolute_error(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return how far predictions are from the right numbers on average, in the numbers' own unit.

    Example:
        >>> mean_absolute_error([1, 2, 3], [2.0, 2.0, 5.0])
        1.0

    Raises:
        DataError: If there are none, numbers differ, or one is not finite.
    """
    check_pairs(len(gold), len(predicted), at_least=1)
    right, guessed = _finite(gold, "right values"), _finite(predicted, "predictions")
    return float(np.abs(right - guessed).mean())


def r_squared(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Return the coefficient of determination, at most 1: 0 is as good as always saying the mean, less is worse.

    DEVIATION: 0 where all right values are the same, as in `pearson`; it is not defined there.

    Example:
        >>> r_squared([1, 2, 3], [1.0, 2.0, 2.0])
        0.5

    Raises:
        DataError: If there are fewer than two, numbers differ, or one is not finite.
    """
    check_pairs(len(gold), len(predicted), at_least=2)
    right, guessed = _finite(gold, "right values"), _finite(predicted, "predictions")
    if right.min() == right.max():
        return 0.0
    return float(1 - np.square(right - guessed).sum() / np.square(right - right.mean()).sum())


def _finite(values: Sequence[float], what: str) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise DataError(f"the {what} hold numbers that are not finite")
    return numbers


def _correlation(function: str, gold: Sequence[float], predicted: Sequence[float]) -> float:
    check_pairs(len(gold), len(predicted), at_least=2)
    right, guessed = _finite(gold, "right values"), _finite(predicted, "predictions")
    if any(values.min() == values.max() for values in (right, guessed)):
        return 0.0
    return float(getattr(scipy_stats(), function)(right, guessed).statistic)
