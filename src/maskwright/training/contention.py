"""Slow ranks, and shorter spinning of OpenMP threads while other processes keep the cores busy.

Threads of GNU OpenMP spin for milliseconds at each barrier before they sleep. Beside a busy process they thereby take
the core that a thread of their own team waits for. libgomp spins 300 times shorter once it manages more threads than
there are cores; an idle second team achieves that. Results do not change: the same threads compute.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

import torch

_CHECK_SECONDS = 0.5
_OTHERS_FROM, _OTHERS_UNTIL, _IDLE = 0.2, 0.1, 1.0
_PARALLEL_ELEMENTS = 1 << 20
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


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds, summed over all cores: busy (other virtual machines included), idle, and of this process."""

    busy: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> "CpuTimes | None":
        """Read them; None if the system has no /proc/stat."""
        with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
            with open("/proc/stat", encoding="ascii") as file:  # user nice system idle iowait irq softirq steal
                times = [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in file.readline().split()[1:9]]
            own, idle = os.times(), times[3] + times[4]
            return cls(sum(times) - idle, idle, own.user + own.system)
        return None


def is_contended(before: CpuTimes | None, after: CpuTimes | None, cores: int, was_contended: bool = False) -> bool:
    """Whether other processes used 0.2 cores (0.1 if they did before) between two readings, with less than one idle."""
    if before is None or after is None:
        return False
    busy, idle, own = after.busy - before.busy, after.idle - before.idle, after.own - before.own
    seconds = max((busy + idle) / cores, 1e-9)
    limit = _OTHERS_UNTIL if was_contended else _OTHERS_FROM
    return idle / seconds < _IDLE and (busy - own) / seconds > limit


class SpinControl:
    """Checks the load twice a second and shortens spinning while other processes compete for the cores."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1
        self._before, self._next = CpuTimes.now(), time.monotonic() + _CHECK_SECONDS
        self._release: threading.Event | None = None

    def check(self) -> bool:
        """Call it after each step; return whether other processes compete."""
        if time.monotonic() >= self._next:
            after, self._next = CpuTimes.now(), time.monotonic() + _CHECK_SECONDS
            contended = is_contended(self._before, after, self._cores, self._release is not None)
            self._before = after
            if not contended:
                self.close()
            elif self._release is None:
                self._release = threading.Event()
                threading.Thread(target=_hold_idle_team, args=(self._release,), daemon=True, name="idle team").start()
        return self._release is not None

    def close(self) -> None:
        """Restore the spinning."""
        if self._release is not None:
            self._release.set()
            self._release = None


def _hold_idle_team(release: threading.Event) -> None:
    torch.zeros(_PARALLEL_ELEMENTS).add_(1)  # Starts a team of OpenMP threads, which exists as long as this thread.
    release.wait()
