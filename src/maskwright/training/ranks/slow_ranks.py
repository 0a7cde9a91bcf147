"""Ranks that take longer than the others."""

from collections.abc import Iterator, Sequence
from statistics import median_low

_SLOW_STEPS, _SLOW_FACTOR = 50, 1.5


class SlowRanks:
    """Finds ranks that take over 1.5 times the median of all ranks, in each 50 steps; of an even number the lower."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._num_steps = 0
        self._named: set[int] = set()

    def find(self, seconds: Sequence[float]) -> Iterator[tuple[int, float, float]]:
        """Take note of a step: each rank's seconds per token of its share, before it waits for the others.

        Yields rank, seconds per token, and their ratio to the median; each rank only once.
        """
        self._sums = [sum(pair) for pair in zip(self._sums or [0.0] * len(seconds), seconds, strict=True)]
        self._num_steps += 1
        if self._num_steps % _SLOW_STEPS:
            return
        median = median_low(self._sums)
        for rank, total in enumerate(self._sums):
            if total > _SLOW_FACTOR * median and rank not in self._named:
                self._named.add(rank)
                yield rank, total / _SLOW_STEPS, total / max(median, 1e-9)
        self._sums = []
