"""Which batches each round of a comparison computes on: the same on all sides, and met before."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.timing import Side, interleave
from maskwright.training.batches import StepBatch

MET_NOTE = (
    "Both sides compute on the same batches, each round on others than the one before. They have met them once before "
    "they are timed: a library prepares itself anew for each number of tokens, which costs the first steps of a run up "
    "to a sixth (tiny, bf16) and some 1 % after 200 to 300 of them (LOG.md)."
)

LOTS = 2
"""Most rounds with batches of their own; more rounds begin again."""

T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Turns:
    """Which batches each round computes on: each side's first run takes the first lot, its second the second, ...

    Attributes:
        lots: How many lots there are; after the last comes the first.
        rounds: Timed rounds, after one of each lot.
    """

    lots: int
    rounds: int

    @classmethod
    def of(cls, rounds: int) -> "Turns":
        """Give each round a lot, in turns, as far as there are any."""
        return cls(min(LOTS, rounds), rounds)

    def dealt(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Cut items into lots of equal size, in their order."""
        size = len(items) // self.lots
        return [items[lot * size : (lot + 1) * size] for lot in range(self.lots)]

    def each(self, lots: Sequence[T], run: Callable[[T], float | None]) -> Callable[[], float | None]:
        """Return what runs on one lot after the other, one a call."""
        coming = itertools.cycle(lots)
        return lambda: run(next(coming))

    def timed(self, sides: Sequence[Side]) -> dict[str, list[float]]:
        """Run all sides in turns, each once through all lots before it is timed (`timing.interleave`)."""
        return interleave(sides, self.rounds, warm_up=self.lots)

    def counted(self, lots: Sequence[T], count: Callable[[T], N]) -> list[N]:
        """Return what counts of the lots were worked through in each timed round."""
        counts = [count(lot) for lot in lots]
        return [counts[number % len(counts)] for number in range(self.rounds)]


def real_tokens(steps: Sequence[StepBatch]) -> int:
    """Return how many tokens steps hold."""
    return sum(step.num_tokens for step in steps)


def filled(steps: Sequence[StepBatch]) -> float:
    """Return the share of slots that hold tokens."""
    return real_tokens(steps) / sum(step.num_slots for step in steps)
