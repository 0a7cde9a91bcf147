"""Ranges of flat arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def concatenated_ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """Return `range(starts[k], starts[k] + lengths[k])` for every k, concatenated. Shapes (K,), (K,) -> (sum,)."""
    before = np.cumsum(lengths) - lengths
    numbers: NDArray[Any] = np.repeat(starts - before, lengths)
    numbers += np.arange(len(numbers))
    return numbers
