"""Measures of one number an example, by SciPy. STS-B is measured by both (Wang et al. 2019, GLUE, table 1)."""

from collections.abc import Sequence

import numpy as np

from maskwright.core.errors import DataError
from maskwright.evaluation.metrics.libraries import check_pairs, scipy_stats


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


def _correlation(function: str, gold: Sequence[float], predicted: Sequence[float]) -> float:
    check_pairs(len(gold), len(predicted), at_least=2)
    right, guessed = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    for values, what in ((right, "right values"), (guessed, "predictions")):
        if not np.isfinite(values).all():
            raise DataError(f"the {what} hold numbers that are not finite")
        if values.min() == values.max():
            return 0.0
    return float(getattr(scipy_stats(), function)(right, guessed).statistic)
