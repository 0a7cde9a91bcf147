"""The cut of items into batches of items of like length."""

import math

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import IntArray


def by_length(
    sizes: IntArray, limit: int, *, longest: IntArray | None = None, multiple: int = 1
) -> list[NDArray[np.int64]]:
    """Cut items into batches of items of like length, longest first; return the items of each, ascending.

    Batches are as few as fit and of about equal size. An item of more than `limit` tokens is a batch of its own. The
    longest come first, so that running out of memory shows at once.

    Args:
        sizes: Shape (N,), tokens of each item (a sequence, or several that stay together).
        longest: Shape (N,), tokens of the longest sequence of each item; None where an item is one sequence.
        multiple: The number of batches is a multiple of it, where that is possible.
    """
    if multiple == 1 and 0 < sizes.sum() <= limit:
        return [np.arange(len(sizes))]
    order = np.argsort(-(sizes if longest is None else longest), kind="stable")
    ends = np.cumsum(sizes[order])
    total = int(ends[-1]) if len(ends) else 0
    groups, first, done = list[NDArray[np.int64]](), 0, 0
    while first < len(order):
        fewest = len(groups) + math.ceil((total - done) / limit)
        share = (total - done) / (math.ceil(fewest / multiple) * multiple - len(groups))
        even = int(np.searchsorted(ends, done + share)) + 1
        fitting = int(np.searchsorted(ends, done + limit, side="right"))
        last = max(first + 1, min(even, fitting))
        groups.append(np.sort(order[first:last]))
        first, done = last, int(ends[last - 1])
    return groups
