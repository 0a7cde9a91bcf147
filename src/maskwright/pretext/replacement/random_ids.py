"""Random tokens: ids drawn uniformly from a vocabulary, without some of them."""

from collections.abc import Set

import numpy as np

from maskwright.core.types import IntArray


def uniform_ids(uniform: IntArray, vocab_size: int, never: Set[int]) -> IntArray:
    """Turn uniform numbers in [0, 1) into ids, each as likely as any other.

    Args:
        uniform: Shape (K,).
        vocab_size: Ids are 0..vocab_size-1.
        never: Ids of the vocabulary that never come up.

    Returns:
        Shape (K,), int64.
    """
    ids = (uniform * (vocab_size - len(never))).astype(np.int64)
    # Numbered without the gaps, so each id moves up by one at every gap that it reaches.
    for gap in sorted(never):
        ids += ids >= gap
    return ids
