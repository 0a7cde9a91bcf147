"""Sampling of units within each sequence of a packed batch: random orders, unit boundaries, and filling a budget.

T tokens, B sequences, U units, V vocabulary size.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]

# Sort keys are (random, offset in the batch): unique, and the order of a sequence does not depend on the rest of the
# batch or on the sorting algorithm.
_RANDOM_BITS, _OFFSET_BITS = 28, 36
_RANDOM = np.uint64((1 << _RANDOM_BITS) - 1 << _OFFSET_BITS)
_OFFSET = np.uint64((1 << _OFFSET_BITS) - 1)
_EXCLUDED = np.uint64((1 << 64) - 1)
"""Key of excluded tokens: greater than all others."""
_WIDTHS = 16 << np.arange(_OFFSET_BITS)
"""Widths of slots: sequences of similar length are sorted as rows of a matrix, several times as fast as separately."""
_MIN_BATCH = 8
_FEW_BOUNDS = 16


@dataclass(frozen=True)
class RandomOrder:
    """Some tokens of each sequence in random order, sorted lazily.

    Attributes:
        keys: Shape (T,), the sort key of each token, unsorted.
        cu_seqlens: As in `Instances`.
    """

    keys: Keys
    cu_seqlens: IntArray

    @classmethod
    def of(
        cls,
        wanted: BoolArray,
        instances: Instances,
        rng: RandomNumbers,
        purpose: str = "masking order",
        weights: FloatArray | None = None,
    ) -> "RandomOrder":
        """Order the `wanted` tokens (T,) randomly.

        With positive `weights` of the ids (V,), the first k tokens of a sequence are a weighted sample without
        replacement (Efraimidis and Spirakis 2006).
        """
        cu_seqlens = instances.cu_seqlens
        keys = rng.bits_everywhere(purpose, cu_seqlens)
        if weights is not None:
            keys = _waiting_times(keys, weights[instances.ids])
        keys &= _RANDOM
        keys |= np.arange(len(keys), dtype=np.uint64)
        keys |= wanted - np.uint64(1)  # all bits where a token is not wanted
        return cls(keys, cu_seqlens)

    @functools.cached_property
    def counts(self) -> IntArray:
        """Number of ordered tokens of each sequence. Shape (B,)."""
        return np.add.reduceat(self.keys != _EXCLUDED, self.cu_seqlens[:-1], dtype=np.int64)

    @property
    def slots(self) -> IntArray:
        """The first position of each sequence in the sorted order. Shape (B,)."""
        return self._sorted[1]

    @functools.cached_property
    def _sorted(self) -> tuple[Keys, IntArray]:
        return _sorted(self.keys, self.cu_seqlens)

    def tokens(self, places: IntArray) -> IntArray:
        """Return the offsets of the tokens at some positions of the sorted order. Shape (K,), int64.

        A sequence's slot is a range of positions that starts with its tokens in order.
        """
        return (self._sorted[0][places] & _OFFSET).astype(np.int64)

    def first(self, counts: IntArray) -> IntArray:
        """Return the offsets of the first `counts` (B,) tokens of each sequence, or all of them, ascending."""
        places, slots = self._sorted
        last = slots + np.minimum(counts, self.counts) - 1
        bounds = np.where(last < slots, np.uint64(0), places[last] + np.uint64(1))
        return np.flatnonzero(self.keys < np.repeat(bounds, np.diff(self.cu_seqlens)))


def _sorted(keys: Keys, cu_seqlens: IntArray) -> tuple[Keys, IntArray]:
    """Sort the keys of each sequence. Return (sorted keys (P,), start of each sequence's slot (B,))."""
    lengths = np.diff(cu_seqlens)
    sizes = np.searchsorted(_WIDTHS, lengths).astype(np.uint8)
    by_size = np.argsort(sizes, kind="stable")
    widths = _WIDTHS[sizes[by_size]]
    ends = np.cumsum(widths)
    slots = np.empty_like(ends)
    slots[by_size] = ends - widths
    places = np.full(ends[-1] if len(ends) else 0, _EXCLUDED)
    where = np.repeat(slots - cu_seqlens[:-1], lengths)
    where += np.arange(len(keys))
    places[where] = keys
    begin = 0
    for size, number in enumerate(np.bincount(sizes)):
        end = begin + int(number * _WIDTHS[size])
        places[begin:end].reshape(number, _WIDTHS[size]).sort(axis=1)
        begin = end
    return places, slots


def _waiting_times(bits: Keys, weights: FloatArray) -> Keys:
    """Return exponential waiting times, shorter for greater weights, as sort keys; only `_RANDOM` bits count."""
    # -log(1 - u) / w, in place.
    waiting = (bits >> np.uint64(11)).astype(np.float64)
    waiting *= -1.0 / (1 << 53)
    np.log1p(waiting, out=waiting)
    waiting /= -weights
    times = waiting.astype(np.float32)
    # Positive floats are ordered like their bits, 31 without the sign. Dropping the lowest keeps a precision of 1e-6.
    return times.view(np.uint32).astype(np.uint64) << np.uint64(64 - 31)


def words(instances: Instances, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all words whose first token is maskable. Shapes (U,), ascending."""
    return units(instances.word_starts, maskable)


def units(begins: BoolArray, maskable: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the (starts, ends) of all units whose first token is maskable. Shapes (U,), ascending.

    `begins` and `maskable` have shape (T,); special tokens are units.
    """
    bounds = np.append(np.flatnonzero(begins), len(begins))
    kept = np.flatnonzero(maskable[bounds[:-1]])
    return bounds[kept], bounds[kept + 1]


@dataclass(frozen=True, slots=True)
class UnitEnds:
    """The unit ends of tokens: the number of units begun up to each (T,), and unit starts and T (U+1,)."""

    numbers: IntArray
    bounds: IntArray

    @classmethod
    def of(cls, begins: BoolArray) -> "UnitEnds":
        """Index the units that begin at some tokens. `begins` has shape (T,)."""
        return cls(np.cumsum(begins), np.append(np.flatnonzero(begins), len(begins)))

    def at(self, tokens: IntArray) -> IntArray:
        """Return one past the last token of the units that hold some tokens. Shape (K,)."""
        ends: IntArray = self.bounds[self.numbers[tokens]]
        return ends


def whole_units(begins: BoolArray, starts: IntArray) -> Selection:
    """Select the units that begin at some ascending tokens `starts` (K,); `begins` (T,) are the starts of all."""
    return Selection(starts, UnitEnds.of(begins).at(starts))


def span_begins(instances: Instances, span_kind: str) -> BoolArray:
    """Return where phrases or entities (`span_kind`) begin. Shape (T,).

    Raises:
        DataError: If the text was prepared without them.
    """
    if span_kind not in instances.span_starts:
        raise DataError(
            f"the text has no {span_kind!r} annotations, which the masking needs",
            allowed=", ".join(sorted(instances.span_starts)) or "none",
            todo="Set words.phrases or words.entities and prepare the text again",
        )
    return instances.span_starts[span_kind]


def ranks(sequences: NDArray[np.int64]) -> IntArray:
    """Number the items of each sequence from 0. `sequences` is ascending, shape (U,)."""
    begins = _begins_of_runs(sequences)
    numbers: IntArray = np.arange(len(sequences)) - np.repeat(begins, np.diff(begins, append=len(sequences)))
    return numbers


def _begins_of_runs(sequences: IntArray) -> IntArray:
    """Return where each run of equal numbers begins. `sequences` is ascending, shape (U,)."""
    changes = np.ones(len(sequences), dtype=bool)
    np.not_equal(sequences[1:], sequences[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def count_reached(bounds: FloatArray, numbers: FloatArray) -> IntArray:
    """Return how many of some ascending bounds are at most each number. Shape of `numbers`."""
    if len(bounds) > _FEW_BOUNDS:
        return np.searchsorted(bounds, numbers, side="right")
    # For few bounds comparing with each is faster than a binary search.
    counts: IntArray = np.zeros(numbers.shape, dtype=np.int64)
    for bound in bounds:
        counts += numbers >= bound
    return counts


def fill_budgets(sequences: IntArray, lengths: IntArray, budgets: IntArray) -> BoolArray:
    """Return which units (U,), in order, fit the rest of their sequence's budget (B,).

    This equals the loop "skip a unit that would overrun, try the others" (create_pretraining_data.py:376-398). Each
    round selects the units before a sequence's first overrun, drops those longer than the remaining budget, and leaves
    the others to the next round.

    Args:
        sequences: Shape (U,), ascending, the sequence of each unit.
        lengths: Shape (U,), tokens of each unit, at least 1.
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
    begins: BoolArray, maskable: BoolArray, instances: Instances, budgets: IntArray, rng: RandomNumbers
) -> Selection:
    """Select the units that begin at `begins` (T,), in random order, while they fit their sequence's token budget."""
    order = RandomOrder.of(begins & maskable, instances, rng)
    unit_ends = UnitEnds.of(begins)
    taken = np.zeros(len(begins), dtype=bool)
    left, at_once = budgets.astype(np.int64, copy=True), _MIN_BATCH
    cursor, ends = order.slots.copy(), order.slots + order.counts
    while (active := np.flatnonzero((left > 0) & (cursor < ends))).size:
        # A unit has at least one token, so units beyond the remaining budget are rarely reached.
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
