"""Random order of tokens within each sequence of a packed batch.

T tokens, B sequences, V vocabulary size.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]

_RANDOM_BITS, _DROPPED_BITS = 28, 36
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
        keys |= random[tokens] >> np.uint64(_DROPPED_BITS) << np.uint64(offset_bits)
        keys |= (tokens - cu_seqlens[sequences]).astype(np.uint64)
        keys.sort()
        offsets = (keys & np.uint64((1 << offset_bits) - 1)).astype(np.int64)
        return cls(cu_seqlens[sequences] + offsets, np.bincount(sequences, minlength=len(instances)))

    @functools.cached_property
    def begins(self) -> IntArray:
        """The index in `tokens` at which each sequence begins. Shape (B,)."""
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
