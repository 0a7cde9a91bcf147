"""Copying of ranges between flat arrays."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def concatenated_ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """Return `range(starts[k], starts[k] + lengths[k])` for every k, concatenated. Shapes (K,), (K,) -> (sum,)."""
    before = np.cumsum(lengths) - lengths
    numbers: NDArray[Any] = np.repeat(starts - before, lengths)
    numbers += np.arange(len(numbers))
    return numbers


@dataclass(frozen=True)
class Runs:
    """Ranges of a source array and their positions in a target array.

    Attributes:
        starts: Shape (K,), start of each range in the source.
        target_starts: Shape (K,), its start in the target. Ranges do not overlap there.
        lengths: Shape (K,), number of items in each.
    """

    starts: NDArray[Any]
    target_starts: NDArray[Any]
    lengths: NDArray[Any]

    def copy(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Copy all ranges into `target`, in place, converted to its type. Shapes (S,), (D,)."""
        target[self._target_indices] = source[self._source_indices]

    def unpack(self, source: NDArray[np.uint8], target: NDArray[np.bool_]) -> None:
        """Copy all ranges of bits into `target`, in place.

        Args:
            source: Shape (S / 8,), rounded up; eight bits a byte, lowest bit first. Ranges count bits.
            target: Shape (D,).
        """
        indices = self._source_indices
        target[self._target_indices] = (source[indices >> 3] >> (indices & 7).astype(np.uint8)) & 1

    @functools.cached_property
    def _source_indices(self) -> NDArray[Any]:
        return concatenated_ranges(self.starts, self.lengths)

    @functools.cached_property
    def _target_indices(self) -> NDArray[Any]:
        return concatenated_ranges(self.target_starts, self.lengths)
