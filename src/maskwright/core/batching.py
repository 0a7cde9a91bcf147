"""The cut of sequences into packed batches of at most so many tokens."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import IntArray


def even_bounds(cu_seqlens: IntArray, limit: int, multiple: int = 1) -> IntArray:
    """Cut sequences in their order; return the first sequence of each batch, and B.

    Batches are few and of about equal size. A sequence longer than `limit` tokens is a batch of its own. The number of
    batches is a multiple of `multiple`, unless long sequences prevent that; it is never less if there are as many
    sequences.

    Args:
        cu_seqlens: Shape (B+1,), the first token of each sequence, and T.
    """
    long = np.flatnonzero(np.diff(cu_seqlens) > limit)
    edges = np.unique([0, *long, *(long + 1), len(cu_seqlens) - 1])
    runs = [
        first + _even_bounds(cu_seqlens[first : last + 1], limit, multiple) for first, last in itertools.pairwise(edges)
    ]
    return np.unique(np.concatenate([edges, *runs]))


def _even_bounds(cu_seqlens: IntArray, limit: int, multiple: int) -> IntArray:
    # Of sequences of which none is longer than the limit, or of one.
    cu_seqlens = cu_seqlens - cu_seqlens[0]
    num_sequences, num_tokens = len(cu_seqlens) - 1, int(cu_seqlens[-1])
    for num_parts in range(multiple * max(1, -(-num_tokens // (multiple * limit))), num_sequences, multiple):
        bounds = np.unique(np.searchsorted(cu_seqlens, np.arange(num_parts + 1) * num_tokens / num_parts))
        if np.diff(cu_seqlens[bounds]).max() <= limit and len(bounds) > multiple:
            return bounds
    return np.arange(num_sequences + 1)


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
