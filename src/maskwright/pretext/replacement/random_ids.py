"""Random tokens: ids sampled uniformly from a vocabulary without some of them."""

from collections.abc import Set

import numpy as np

from maskwright.core.types import IntArray


def uniform_ids(uniform: IntArray, vocab_size: int, never: Set[int]) -> IntArray:
    """Turn uniform numbers in [0, 1) into ids of the vocabulary except `never`, all equally likely. Shapes (K,)."""
    ids = (uniform * (vocab_size - len(never))).astype(np.int64)
    # Numbered without the gaps: each id moves up by one at every gap that it reaches.
    for gap in sorted(never):
        ids += ids >= gap
    return ids
