"""What maskings share: words as units, a keyed random order within each sequence, and filling a budget."""

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection

FloatArray = NDArray[np.float64]

# Sort keys are (sequence, random, offset), so they are unique, one plain sort orders a batch, and the same
# sequence is ordered alike whatever else is in the batch and whichever sort the machine uses.
_SEQUENCE_BITS, _RANDOM_BITS, _OFFSET_BITS = 16, 28, 20


def words(instances: Instances, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all words whose first token is maskable. Shapes (U,), ascending."""
    return units(instances.word_starts, maskable)


def units(begins: BoolArray, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all units whose first token is maskable. Shapes (U,), ascending.

    Args:
        begins: Shape (T,), True where a token begins a unit; special tokens are units of their own.
        maskable: Shape (T,), True where a token may be selected.
    """
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(begins))
    kept = maskable[starts]
    return starts[kept], ends[kept]


def level_begins(instances: Instances, level: str) -> BoolArray:
    """Return where units of a level begin. Shape (T,).

    Raises:
        DataError: If the text was stored without that level.
    """
    if level not in instances.level_starts:
        raise DataError(
            f"the text carries no units of the level {level!r}, which the masking asks for",
            allowed=", ".join(sorted(instances.level_starts)) or "none",
            todo="Set words.phrases or words.entities and prepare the text anew",
        )
    return instances.level_starts[level]


def random_order(
    starts: IntArray, instances: Instances, draws: Draws, purpose: str, weights: FloatArray | None = None
) -> IntArray:
    """Put units in random order within each sequence; sequences keep theirs.

    Args:
        starts: Shape (U,), ascending token offsets, one for each unit.
        instances: The flat batch: sequences shorter than 2^20 tokens.
        draws: The keyed random numbers.
        purpose: What the numbers are for.
        weights: Shape (U,), positive: the first k units of a sequence are then k draws without replacement, each
            with these weights among what is left (Efraimidis and Spirakis 2006). None: all units are alike.

    Returns:
        Shape (U,): the same token offsets, each sequence's shuffled.
    """
    sequences = instances.sequence_ids[starts]
    offsets = starts - instances.cu_seqlens[sequences]
    if weights is None:
        order = draws.bits_at(purpose, sequences, offsets)
        order >>= np.uint64(64 - _RANDOM_BITS)
    else:
        order = _waiting_times(draws.uniform_at(purpose, sequences, offsets), weights)
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


def _waiting_times(uniform: FloatArray, weights: FloatArray) -> NDArray[np.uint64]:
    """Return sort keys of `_RANDOM_BITS` bits: exponential waiting times, the shorter the greater the weight."""
    times = (-np.log1p(-uniform) / weights).astype(np.float32)
    # Positive floats are ordered like their bits; of the 31 below the sign the lowest three are forgone, which leaves
    # times exact to one in a million.
    return times.view(np.uint32).astype(np.uint64) >> np.uint64(31 - _RANDOM_BITS)


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


def until_full(starts: IntArray, ends: IntArray, instances: Instances, budgets: IntArray, draws: Draws) -> Selection:
    """Take whole units in random order, each that still fits its sequence's budget of tokens.

    Args:
        starts, ends: Shape (U,), ascending token ranges that do not overlap.
        instances: The flat batch.
        budgets: Shape (B,), tokens to take from each sequence at most.
        draws: The keyed random numbers.
    """
    order = random_order(starts, instances, draws, "masking order")
    end_of_unit = np.zeros(len(instances.ids), dtype=np.int64)
    end_of_unit[starts] = ends
    taken = fill_budgets(instances.sequence_ids[starts], end_of_unit[order] - order, budgets)
    chosen = np.sort(order[taken])
    return Selection(chosen, end_of_unit[chosen])
