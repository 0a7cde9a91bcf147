"""Held-out documents, chosen by a hash of their text: independent of order, seed, recipe and tokenizer."""

import numpy as np
from numpy.typing import NDArray

from maskwright.core.randomness import hash_64
from maskwright.core.types import BoolArray, IntArray


def document_key(text: str) -> int:
    """Return 64 bits that identify a document by its text."""
    return hash_64(text.encode("utf-8", "surrogatepass"))


def held_out(keys: NDArray[np.uint64], sizes: IntArray, limit: int) -> BoolArray:
    """Return which of D documents are held out: in the order of their keys each that fits. Shape (D,).

    Args:
        keys: Shape (D,), of `document_key`. Documents with equal keys are both held out or both not.
        sizes: Shape (D,), 1 or more.
        limit: Largest sum of the sizes that are held out.
    """
    unique, group_of = np.unique(keys, return_inverse=True)
    totals = np.bincount(group_of, weights=sizes).astype(np.int64)
    chosen = np.zeros(len(unique), dtype=np.bool_)
    smallest = totals.min(initial=limit)
    for group, size in enumerate(totals.tolist()):
        if limit < smallest:
            break
        if size <= limit:
            chosen[group] = True
            limit -= size
    return chosen[group_of]
