"""The number of threads: at most the CPU quota of the container, and in inference no more than there are free cores.

A team of threads waits for its slowest member at each barrier. A thread that shares its core with another process, or
that the quota stops, therefore delays the whole call, by up to 100 ms.
"""

import contextlib
import functools
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from maskwright.core.types import MatmulPrecision
from maskwright.machine.contention import OtherLoad

_SMALL_FLOPS: dict[MatmulPrecision, float] = {"fp32": 1e8, "bf16": 2e8, "int8": 4e8}
"""Forward FLOPs of a call below which a second thread gains nothing: about a millisecond of one core."""
_TOLERANCE = 0.25
"""Part of a core that other processes may use before it counts as busy."""

_load = OtherLoad()
_lock = threading.Lock()


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the cores that the cgroups of this process grant it; None without a limit. Cgroup v1 and v2.

    `root` is the file system's. Every group from that of the process up to the visible root counts.
    """
    quotas = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / controllers
            folder = top / group.strip("/")
            # In a container the path may be the host's: then only the top is there.
            for each in (folder, *folder.parents):
                if (quota := _quota(each)) is not None:
                    quotas.append(quota)
                if each == top:
                    break
    return min(quotas, default=None)


def _quota(folder: Path) -> float | None:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
            if (cores := float(quota) / float(period)) > 0:  # "max" and -1 are no limit.
                return cores
    return None


@functools.cache
def _cores() -> int:
    return os.cpu_count() or 1  # 23 us each time: it reads /sys.


@functools.cache
def _quota_threads() -> int:
    """Return the most threads that the quota keeps running all the time; OMP_NUM_THREADS overrides it."""
    quota = None if "OMP_NUM_THREADS" in os.environ else cpu_quota()
    return _cores() if quota is None else max(1, math.floor(quota))


def limit_threads() -> None:
    """Use no more threads than the quota keeps running. For the calling thread and those of its matmuls."""
    if torch.get_num_threads() > (most := _quota_threads()):
        torch.set_num_threads(most)


def threads_for(flops: float, precision: MatmulPrecision, most: int, busy_cores: float, cores: int) -> int:
    """Return the threads of a call of inference, at most `most`: one for a small call, else as many as cores are free.

    `busy_cores` of the `cores` are used by other processes.
    """
    if flops < _SMALL_FLOPS[precision]:
        return 1
    return max(1, min(most, math.floor(cores - busy_cores + _TOLERANCE)))


@contextlib.contextmanager
def inference_threads(flops: float, device: torch.device, precision: MatmulPrecision = "fp32") -> Iterator[None]:
    """Compute the block, a call of inference, with the number of threads of the CPU that suits it (`threads_for`).

    On another device, or if another thread of this process is in such a block, nothing is changed.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1 or not _lock.acquire(blocking=False):
        yield
        return
    try:
        most = min(before, _quota_threads())
        threads = threads_for(flops, precision, most, _load.cores(), _cores())
        if threads != before:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if threads != before:
                torch.set_num_threads(before)
    finally:
        _lock.release()


def threads_of_head(hidden: Tensor, width: int) -> contextlib.AbstractContextManager[None]:
    """Return `inference_threads` for a matmul of hidden states (M, H) to `width` outputs each."""
    return inference_threads(2 * hidden.numel() * width, hidden.device)
