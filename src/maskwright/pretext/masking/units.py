"""What maskings share: words as units, and filling a budget."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.order import FloatArray, RandomOrder

_FEWEST_AT_ONCE = 8
_FEW_BOUNDS = 16


def words(instances: Instances, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all words whose first token is maskable. Shapes (U,), ascending."""
    return units(instances.word_starts, maskable)


def units(begins: BoolArray, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all units whose first token is maskable. Shapes (U,), ascending.

    Args:
        begins: Shape (T,), True where a token begins a unit; special tokens are units of their own.
        maskable: Shape (T,), True where a token may be selected.
    """
    bounds = np.append(np.flatnonzero(begins), len(begins))
    kept = np.flatnonzero(maskable[bounds[:-1]])
    return bounds[kept], bounds[kept + 1]


@dataclass(frozen=True, slots=True)
class UnitEnds:
    """Where units end, by their tokens.

    Attributes:
        numbers: Shape (T,), how many units have begun up to each token.
        bounds: Shape (U+1,), where units begin, and T.
    """

    numbers: IntArray
    bounds: IntArray

    @classmethod
    def of(cls, begins: BoolArray) -> "UnitEnds":
        """Note the ends of the units that begin at some tokens. `begins` has shape (T,)."""
        return cls(np.cumsum(begins), np.append(np.flatnonzero(begins), len(begins)))

    def at(self, tokens: IntArray) -> IntArray:
        """Return one past the last token of the units that hold some tokens. Shape (K,)."""
        ends: IntArray = self.bounds[self.numbers[tokens]]
        return ends


def whole_units(begins: BoolArray, starts: IntArray) -> Selection:
    """Select the units that begin at some tokens.

    Args:
        begins: Shape (T,), True where a unit begins.
        starts: Shape (K,), ascending tokens at which one does.
    """
    return Selection(starts, UnitEnds.of(begins).at(starts))


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


def ranks(sequences: NDArray[np.int64]) -> IntArray:
    """Number the items of each sequence from 0. `sequences` is ascending, shape (U,)."""
    begins = _begins_of_runs(sequences)
    numbers: IntArray = np.arange(len(sequences)) - np.repeat(begins, np.diff(begins, append=len(sequences)))
    return numbers


def _begins_of_runs(sequences: IntArray) -> IntArray:
    """Return where another sequence begins. `sequences` is ascending, shape (U,)."""
    changes = np.ones(len(sequences), dtype=bool)
    np.not_equal(sequences[1:], sequences[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def count_reached(bounds: FloatArray, numbers: FloatArray) -> IntArray:
    """Return how many of some ascending bounds each number reaches. Both may have any number; the shape is kept."""
    if len(bounds) > _FEW_BOUNDS:
        return np.searchsorted(bounds, numbers, side="right")
    # Comparing with every bound is quicker than searching among few of them, where each step is a branch.
    counts: IntArray = np.zeros(numbers.shape, dtype=np.int64)
    for bound in bounds:
        counts += numbers >= bound
    return counts


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
        begins = _begins_of_runs(owners)
        running -= np.repeat((running - sizes)[begins], np.diff(begins, append=len(owners)))
        fits = running <= left[owners]
        taken[waiting] = fits
        left[owners[begins]] -= np.add.reduceat(sizes * fits, begins)
        over = np.flatnonzero(~fits)
        waiting = waiting[over[sizes[over] <= left[owners[over]]]]
    return taken


def until_full(
    begins: BoolArray, maskable: BoolArray, instances: Instances, budgets: IntArray, draws: Draws
) -> Selection:
    """Take whole units in random order, each that still fits its sequence's budget of tokens.

    Args:
        begins: Shape (T,), True where a token begins a unit (see `units`).
        maskable: Shape (T,), True where a token may be selected.
        instances: The flat batch.
        budgets: Shape (B,), tokens to take from each sequence at most.
        draws: The keyed random numbers.
    """
    order = RandomOrder.of(begins & maskable, instances, draws)
    unit_ends = UnitEnds.of(begins)
    taken = np.zeros(len(begins), dtype=bool)
    left, at_once = budgets.astype(np.int64, copy=True), _FEWEST_AT_ONCE
    cursor, ends = order.slots.copy(), order.slots + order.counts
    while (active := np.flatnonzero((left > 0) & (cursor < ends))).size:
        # A unit takes at least one token, so more units than there is room for are seldom looked at.
        counts = np.minimum(ends[active] - cursor[active], np.maximum(left[active], at_once))
        tokens, owners = order.tokens(concatenated_ranges(cursor[active], counts)), np.repeat(active, counts)
        lengths = unit_ends.at(tokens) - tokens
        fits = fill_budgets(owners, lengths, left)
        taken[tokens] = fits
        left[active] -= np.add.reduceat(lengths * fits, np.cumsum(counts) - counts)
        cursor[active] += counts
        at_once *= 2
    starts = np.flatnonzero(taken)
    return Selection(starts, unit_ends.at(starts))
