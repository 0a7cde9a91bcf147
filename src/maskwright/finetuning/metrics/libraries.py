"""The libraries that measure, imported when something is measured: scikit-learn alone takes a second."""

from typing import Any

from maskwright.core.errors import DataError
from maskwright.data.libraries import imported


def _imported(module: str, package: str) -> Any:
    return imported(module, package=package, purpose="measuring", todo=f"Install it: `pip install {package}`.")


def sklearn_metrics() -> Any:
    """Import `sklearn.metrics`.

    Raises:
        DataError: If scikit-learn is not installed.
    """
    return _imported("sklearn.metrics", "scikit-learn")


def scipy_stats() -> Any:
    """Import `scipy.stats`.

    Raises:
        DataError: If SciPy is not installed.
    """
    return _imported("scipy.stats", "scipy")


def nervaluate() -> Any:
    """Import `nervaluate`.

    Raises:
        DataError: If nervaluate is not installed.
    """
    return _imported("nervaluate", "nervaluate")


def check_pairs(gold: int, predicted: int, at_least: int = 1) -> None:
    """Refuse to measure nothing, or lists that do not go together.

    Args:
        gold: How many right values there are.
        predicted: How many predicted ones.
        at_least: How many the measure needs.

    Raises:
        DataError: If the numbers differ or are too small.
    """
    if gold != predicted:
        raise DataError(f"{predicted} predictions cannot be measured against {gold} right values")
    if gold < at_least:
        raise DataError(
            f"there are {gold} labelled examples to measure", allowed=f"{at_least} or more", todo="Check the file."
        )
