"""Sampling of units within each sequence of a packed batch: random orders, unit boundaries, and filling a budget.

T tokens, B sequences, V vocabulary size.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]

_RANDOM_BITS, _PLACE_BITS = 28, 36
"""A sort key is (sequence, random bits, offset in the sequence): unique, so that the order of a sequence does not
depend on the rest of the batch or on the sorting algorithm."""


@dataclass(frozen=True)
class RandomOrder:
    """Some tokens of each sequence in random order.

    Attributes:
        tokens: Shape (K,), their offsets in the batch, sequence by sequence.
        counts: Shape (B,), number of tokens of each sequence.
    """

    tokens: IntArray
    counts: IntArray

    @classmethod
    def of(
        cls, wanted: BoolArray, instances: Instances, rng: RandomNumbers, weights: FloatArray | None = None
    ) -> "RandomOrder":
        """Order the `wanted` tokens (T,) randomly.

        With positive `weights` of the ids (V,), the first k tokens of a sequence are a weighted sample without
        replacement (Efraimidis and Spirakis 2006).
        """
        cu_seqlens = instances.cu_seqlens
        random = rng.bits_everywhere("masking order", cu_seqlens)
        if weights is not None:
            random = _waiting_times(random, weights[instances.ids])
        tokens = np.flatnonzero(wanted)
        sequences = instances.sequence_ids[tokens]
        offset_bits = int(instances.lengths.max(initial=0)).bit_length()
        keys = (sequences << (_RANDOM_BITS + offset_bits)).astype(np.uint64)
        keys |= random[tokens] >> np.uint64(_PLACE_BITS) << np.uint64(offset_bits)
        keys |= (tokens - cu_seqlens[sequences]).astype(np.uint64)
        keys.sort()
        offsets = (keys & np.uint64((1 << offset_bits) - 1)).astype(np.int64)
        return cls(cu_seqlens[sequences] + offsets, np.bincount(sequences, minlength=len(instances)))

    @functools.cached_property
    def begins(self) -> IntArray:
        """Where each sequence begins in `tokens`. Shape (B,)."""
        begins: IntArray = np.cumsum(self.counts) - self.counts
        return begins

    def rounds(self, left: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield in each round the sequences with budget `left` (B,), which the caller decreases, and their next tokens.

        All sequences are filled at once, one token of each per round.
        """
        active = np.arange(len(left))
        for tried in range(int(self.counts.max(initial=0))):
            active = active[(left[active] > 0) & (tried < self.counts[active])]
            if not len(active):
                return
            yield active, self.tokens[self.begins[active] + tried]

    def first(self, counts: IntArray) -> IntArray:
        """Return the offsets of the first `counts` (B,) tokens of each sequence, or all of them, ascending."""
        return np.sort(self.tokens[concatenated_ranges(self.begins, np.minimum(counts, self.counts))])


def _waiting_times(bits: Keys, weights: FloatArray) -> Keys:
    """Return exponential waiting times, shorter for greater weights, as sort keys; only the upper bits count."""
    # -log(1 - u) / w, in place.
    waiting = (bits >> np.uint64(11)).astype(np.float64)
    waiting *= -1.0 / (1 << 53)
    np.log1p(waiting, out=waiting)
    waiting /= -weights
    times = waiting.astype(np.float32)
    # Positive floats are ordered like their bits, 31 without the sign. Dropping the lowest keeps a precision of 1e-6.
    return times.view(np.uint32).astype(np.uint64) << np.uint64(64 - 31)


def unit_ends(begins: BoolArray) -> IntArray:
    """Return one past the last token of each token's unit; units begin at `begins`. Shapes (T,)."""
    ends: IntArray = np.append(np.flatnonzero(begins), len(begins))[np.cumsum(begins)]
    return ends


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


def until_full(
    begins: BoolArray, maskable: BoolArray, instances: Instances, budgets: IntArray, rng: RandomNumbers
) -> Selection:
    """Select the units that begin at `begins` (T,), in random order, while they fit their sequence's token budget.

    A unit that would overrun is skipped, and the others are still tried (create_pretraining_data.py:376-398).
    """
    order, ends = RandomOrder.of(begins & maskable, instances, rng), unit_ends(begins)
    taken = np.zeros(len(begins), dtype=bool)
    left = budgets.copy()
    for active, units in order.rounds(left):
        lengths = ends[units] - units
        fits = lengths <= left[active]
        taken[units] = fits
        left[active] -= lengths * fits
    starts = np.flatnonzero(taken)
    return Selection(starts, ends[starts])
