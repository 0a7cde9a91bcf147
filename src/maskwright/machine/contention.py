"""Other processes that keep the cores busy, and shorter spinning of OpenMP threads meanwhile.

Threads of GNU OpenMP spin for milliseconds at each barrier before they sleep. Beside a busy process they thereby take
the core that a thread of their own team waits for. libgomp spins 300 times shorter once it manages more threads than
there are cores; an idle second team achieves that. Results do not change: the same threads compute.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

_CHECK_SECONDS = 0.5
_OTHERS_FROM, _OTHERS_UNTIL, _IDLE = 0.2, 0.1, 1.0
_PARALLEL_ELEMENTS = 1 << 20
_STALE_SECONDS, _SAMPLED_SECONDS = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds, summed over all cores: busy (other virtual machines included), idle, and of this process."""

    busy: float
    idle: float
    process: float

    @classmethod
    def now(cls) -> "CpuTimes | None":
        """Read them; None if the system has no /proc/stat."""
        with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
            with open("/proc/stat", encoding="ascii") as file:  # user nice system idle iowait irq softirq steal
                times = [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in file.readline().split()[1:9]]
            process, idle = os.times(), times[3] + times[4]
            return cls(sum(times) - idle, idle, process.user + process.system)
        return None


def is_contended(before: CpuTimes | None, after: CpuTimes | None, cores: int, was_contended: bool = False) -> bool:
    """Return whether other processes used 0.2 cores (0.1 if they did before), with less than one core idle."""
    if before is None or after is None:
        return False
    busy, idle, process = after.busy - before.busy, after.idle - before.idle, after.process - before.process
    seconds = max((busy + idle) / cores, 1e-9)
    limit = _OTHERS_UNTIL if was_contended else _OTHERS_FROM
    return idle / seconds < _IDLE and (busy - process) / seconds > limit


class OtherLoad:
    """The cores that other processes use: over the last half second of CPU time.

    After two seconds without a call it is the number of their runnable threads: the fewest that the calls of the next
    tenth of a second see, since a thread may run for a moment only, such as a server's client.
    """

    def __init__(self) -> None:
        self._before: CpuTimes | None = None
        self._read = -_STALE_SECONDS
        self._cores, self._is_sampled = 0.0, False

    def cores(self) -> float:
        """Return the number of cores; 0 on a system without /proc.

        Takes 1 us, and 50 us every half second and while threads of others are counted.
        """
        now = time.monotonic()
        if now - self._read < _CHECK_SECONDS:
            if self._is_sampled and self._cores:
                self._cores = min(self._cores, _runnable_others())
            return self._cores
        before, after = self._before, CpuTimes.now()
        self._is_sampled = before is None or after is None or now - self._read > _STALE_SECONDS
        if before is None or after is None or self._is_sampled:
            self._cores = _runnable_others()
            now -= _CHECK_SECONDS - _SAMPLED_SECONDS  # A single reading is noisy.
        else:
            seconds = (after.busy + after.idle - before.busy - before.idle) / (os.cpu_count() or 1)
            self._cores = max(0.0, after.busy - before.busy - (after.process - before.process)) / max(seconds, 1e-9)
        self._before, self._read = after, now
        return self._cores


def _runnable_others(proc: Path = Path("/proc")) -> float:
    """Return the number of threads of other processes that run or wait for a core at this moment; 0 if unknown.

    Threads of this process, which spin for a while after its last matmul, do not count.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        runnable = int((proc / "loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])
        if runnable <= 1:  # This thread.
            return 0.0
        for task in os.listdir(proc / "self/task"):
            path = proc / "self/task" / task / "stat"
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:  # It may end.
                runnable -= file.read().rpartition(")")[2].split()[0] == "R"
        return max(0.0, float(runnable))
    return 0.0


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
