"""What maskings share: words as units, a keyed random order within each sequence, and filling a budget."""

import numpy as np
from numpy.typing import NDArray

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray

# Sort keys are (sequence, random, offset), so they are unique, one plain sort orders a batch, and the same
# sequence is ordered alike whatever else is in the batch and whichever sort the machine uses.
_SEQUENCE_BITS, _RANDOM_BITS, _OFFSET_BITS = 16, 28, 20


def words(instances: Instances, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all words whose first token is maskable. Shapes (U,), ascending."""
    starts = np.flatnonzero(instances.word_starts)
    ends = np.append(starts[1:], len(instances.ids))
    kept = maskable[starts]
    return starts[kept], ends[kept]


def random_order(starts: IntArray, instances: Instances, draws: Draws, purpose: str) -> IntArray:
    """Put units in random order within each sequence; sequences keep theirs.

    Args:
        starts: Shape (U,), ascending token offsets, one for each unit.
        instances: The flat batch: sequences shorter than 2^20 tokens.
        draws: The keyed random numbers.
        purpose: What the numbers are for.

    Returns:
        Shape (U,): the same token offsets, each sequence's shuffled.
    """
    sequences = instances.sequence_ids[starts]
    offsets = starts - instances.cu_seqlens[sequences]
    order = draws.bits_at(purpose, sequences, offsets)
    order >>= np.uint64(64 - _RANDOM_BITS)
    order <<= np.uint64(_OFFSET_BITS)
    order |= offsets.astype(np.uint64)
    order |= sequences.astype(np.uint64) << np.uint64(_RANDOM_BITS + _OFFSET_BITS)
    per_sort = 1 << _SEQUENCE_BITS
    for block in range(0, len(instances), per_sort):
        # More sequences than the key has bits for: the bits wrap around, so each block is sorted by itself.
        low, high = np.searchsorted(sequences, [block, block + per_sort])
        order[low:high].sort()
    # Sorting moves nothing from one sequence into another, so `sequences` still says which is which.
    return instances.cu_seqlens[sequences] + (order & np.uint64((1 << _OFFSET_BITS) - 1)).astype(np.int64)


def ranks(sequences: NDArray[np.int64]) -> IntArray:
    """Number the items of each sequence from 0. `sequences` is ascending, shape (U,)."""
    begins = np.flatnonzero(np.diff(sequences, prepend=-1))
    return np.arange(len(sequences)) - np.repeat(begins, np.diff(np.append(begins, len(sequences))))


def fill_budgets(sequences: IntArray, lengths: IntArray, budgets: IntArray) -> BoolArray:
    """Go through each sequence's units in order and take every one that still fits its budget.

    This equals the plain loop "skip a unit that would overrun, try the others" (create_pretraining_data.py:
    376-398): in each round, the units before a sequence's first overrun are taken together; what is longer
    than the rest of the budget can never fit again and is dropped; the next round goes on with the others.

    Args:
        sequences: Shape (U,), ascending, the sequence of each unit.
        lengths: Shape (U,), tokens of each unit, at least 1.
        budgets: Shape (B,), tokens to take from each sequence at most.

    Returns:
        Shape (U,), True where a unit is taken.
    """
    taken = np.zeros(len(sequences), dtype=bool)
    left = budgets.astype(np.int64, copy=True)
    waiting = np.flatnonzero(lengths <= left[sequences])
    while waiting.size:
        owners, sizes = sequences[waiting], lengths[waiting]
        running = np.cumsum(sizes)
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        before = np.repeat((running - sizes)[begins], np.diff(np.append(begins, len(owners))))
        fits = running - before <= left[owners]
        taken[waiting[fits]] = True
        left -= np.bincount(owners[fits], weights=sizes[fits], minlength=len(left)).astype(np.int64)
        waiting, owners, sizes = waiting[~fits], owners[~fits], sizes[~fits]
        waiting = waiting[sizes <= left[owners]]
    return taken
