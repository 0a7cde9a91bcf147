"""Timing two or more sides in turns, ABBA..., so that what disturbs the machine disturbs all of them alike."""

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmarks.progress import tell

_SMALLEST = 4
"""Places behind the point up to which numbers are written without an exponent."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared.

    Attributes:
        name: As tables call it.
        run: Does the work once. A side that must not be timed from outside (a whole `Trainer.train`, of which only
            the steps count) returns the seconds that it measured itself; others return None.
        around: Makes a context to run in, e.g. a library setting that only this side may have.
    """

    name: str
    run: Callable[[], float | None]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some measurements and how far they scatter.

    Attributes:
        median: The middle.
        low: Lower quartile.
        high: Upper quartile.
        count: How many measurements.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Describe some values, at least one."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def told(self, digits: int = 3) -> str:
        """Write the median and, in brackets, the quartiles."""
        return f"{number(self.median, digits)} ({number(self.low, digits)}-{number(self.high, digits)})"


def interleave(
    sides: Sequence[Side],
    rounds: int,
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    between: Callable[[], object] = gc.collect,
) -> dict[str, list[float]]:
    """Run all sides in turns and return the seconds of each run, by side, in the order of the rounds.

    Each round begins with another side: what one leaves in the caches meets all that follow.

    Args:
        sides: What to compare; their names differ.
        rounds: Timed rounds.
        warm_up: Rounds before them that are not counted.
        clock: Seconds.
        between: Called before each run, untimed, so that no side pays for what another left behind.
    """
    names = [side.name for side in sides]
    if len(set(names)) < len(names):
        raise ValueError(f"two sides have the same name: {names}")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_up + rounds):
        first = turn % len(sides)
        for side in (*sides[first:], *sides[:first]):
            between()
            tell(f"  round {turn - warm_up + 1} of {rounds}: {side.name}" if turn >= warm_up else "  warming up")
            with side.around():
                begun = clock()
                own = side.run()
                took = clock() - begun
            if turn >= warm_up:
                seconds[side.name].append(took if own is None else own)
    tell("")
    return seconds


def speeds(seconds: Sequence[float], work: float) -> list[float]:
    """Return work a second, round by round."""
    return [work / each for each in seconds]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return how many times as fast one side is as another, from the speeds of the same rounds.

    Each round gives one ratio: a slow moment of the machine slows both of its runs.
    """
    return Spread.of([own / other for own, other in zip(ours, theirs, strict=True)])


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many digits: 14229.3 -> "14,200", 0.9 -> "0.900", 0.0000012 -> "1.20e-06"."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = math.floor(math.log10(abs(rounded)))
    if exponent < -_SMALLEST:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"
