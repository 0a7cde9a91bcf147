"""A keyed random order of tokens within each sequence of a flat batch."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]

# Sort keys are (random, offset in the batch), so they are unique, and the same sequence is ordered alike whatever else
# is in the batch and whichever sort the machine uses.
_RANDOM_BITS, _OFFSET_BITS = 28, 36
_RANDOM = np.uint64((1 << _RANDOM_BITS) - 1 << _OFFSET_BITS)
_OFFSET = np.uint64((1 << _OFFSET_BITS) - 1)
_NOBODY = np.uint64((1 << 64) - 1)
"""Key of tokens that are in no order: behind all others."""
_WIDTHS = 16 << np.arange(_OFFSET_BITS)
"""Places that slots may have. Sequences of like length lie side by side, so that one call sorts all of them: numpy
sorts many short rows several times as fast as it sorts one long one."""


@dataclass(frozen=True)
class RandomOrder:
    """Some tokens of each sequence in random order; sorted when that is asked for.

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
        draws: Draws,
        purpose: str = "masking order",
        weights: FloatArray | None = None,
    ) -> "RandomOrder":
        """Put tokens in order.

        Args:
            wanted: Shape (T,), True at the tokens to order.
            instances: The flat batch.
            draws: The keyed random numbers.
            purpose: What the numbers are for.
            weights: Shape (V,), the weight of each id, positive: the first k tokens of a sequence are then k draws
                without replacement, each with these weights among what is left (Efraimidis and Spirakis 2006). None:
                all tokens are alike.
        """
        cu_seqlens = instances.cu_seqlens
        keys = draws.bits_everywhere(purpose, cu_seqlens)
        if weights is not None:
            keys = _waiting_times(keys, weights[instances.ids])
        keys &= _RANDOM
        keys |= np.arange(len(keys), dtype=np.uint64)
        keys |= wanted - np.uint64(1)  # all bits where a token is not wanted
        return cls(keys, cu_seqlens)

    @functools.cached_property
    def counts(self) -> IntArray:
        """How many tokens of each sequence are in order. Shape (B,)."""
        return np.add.reduceat(self.keys != _NOBODY, self.cu_seqlens[:-1], dtype=np.int64)

    @property
    def slots(self) -> IntArray:
        """The first place of each sequence (see `tokens`). Shape (B,)."""
        return self._sorted[1]

    @functools.cached_property
    def _sorted(self) -> tuple[Keys, IntArray]:
        return _sorted(self.keys, self.cu_seqlens)

    def tokens(self, places: IntArray) -> IntArray:
        """Return which tokens stand at some places: their offsets in the batch. Shape (K,), int64.

        Each sequence has a slot, a run of places in which its tokens come first, in order.
        """
        return (self._sorted[0][places] & _OFFSET).astype(np.int64)

    def first(self, counts: IntArray) -> IntArray:
        """Return the first tokens of each sequence, or all where there are fewer: their offsets, ascending.

        Args:
            counts: Shape (B,), how many of each sequence, at least 0.
        """
        places, slots = self._sorted
        last = slots + np.minimum(counts, self.counts) - 1
        bounds = np.where(last < slots, np.uint64(0), places[last] + np.uint64(1))
        return np.flatnonzero(self.keys < np.repeat(bounds, np.diff(self.cu_seqlens)))


def _sorted(keys: Keys, cu_seqlens: IntArray) -> tuple[Keys, IntArray]:
    """Sort the keys of each sequence: (places (P,), where each sequence's slot begins (B,))."""
    lengths = np.diff(cu_seqlens)
    sizes = np.searchsorted(_WIDTHS, lengths).astype(np.uint8)
    by_size = np.argsort(sizes, kind="stable")
    widths = _WIDTHS[sizes[by_size]]
    ends = np.cumsum(widths)
    slots = np.empty_like(ends)
    slots[by_size] = ends - widths
    places = np.full(ends[-1] if len(ends) else 0, _NOBODY)
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
    """Return exponential waiting times as sort keys, the shorter the greater the weight; only `_RANDOM` bits count."""
    # -log(1 - u) / w, in place: signs are moved to where they cost no pass.
    waiting = (bits >> np.uint64(11)).astype(np.float64)
    waiting *= -1.0 / (1 << 53)
    np.log1p(waiting, out=waiting)
    waiting /= -weights
    times = waiting.astype(np.float32)
    # Positive floats are ordered like their bits. Below the sign there are 31; those that do not fit are forgone, which
    # leaves times exact to one in a million.
    return times.view(np.uint32).astype(np.uint64) << np.uint64(64 - 31)
