"""Ranges of a flat array of tokens: truncated, selected, cut into windows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.types import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Ranges:
    """Half-open ranges [starts, ends) of a flat token array, each of shape (B,), int64."""

    starts: IntArray
    ends: IntArray

    @property
    def lengths(self) -> IntArray:
        return self.ends - self.starts

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Indices of all tokens, range by range. Shape (sum of lengths,)."""
        return concatenated_ranges(self.starts, self.lengths)

    def first(self, lengths: IntArray) -> "Ranges":
        """Return the ranges truncated to `lengths`, shape (B,) or ()."""
        return Ranges(self.starts, np.minimum(self.ends, self.starts + lengths))

    def pick(self, index: IntArray) -> "Ranges":
        return Ranges(self.starts[index], self.ends[index])

    @staticmethod
    def where(condition: BoolArray, first: "Ranges", second: "Ranges") -> "Ranges":
        """Return the ranges of `first` where the condition holds, else those of `second`. Shapes (B,)."""
        return Ranges(np.where(condition, first.starts, second.starts), np.where(condition, first.ends, second.ends))


def ranges_of(lengths: IntArray) -> Ranges:
    """Return consecutive ranges with these lengths."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return Ranges(ends - lengths, ends)


def cut_windows(texts: Ranges, longest: IntArray, stride: int | None = None) -> tuple[IntArray, Ranges]:
    """Split texts into windows of at most `longest` tokens, (B,), >= 1, whose starts are at most `stride` >= 1 apart.

    None: a window repeats the last quarter of the one before. Return the text of each window, shape (W,), ascending,
    and the ranges of the windows, at least one a text.
    """
    steps = longest - longest // 4 if stride is None else np.minimum(longest, stride)
    counts = 1 + -(-np.maximum(texts.lengths - longest, 0) // steps)
    of_text = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(of_text)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = texts.starts[of_text] + numbers * steps[of_text]
    return of_text, Ranges(starts, np.minimum(starts + longest[of_text], texts.ends[of_text]))
