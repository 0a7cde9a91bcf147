"""What the machine is: processor, cores, instructions, memory, graphics card, allocator. Read, not measured."""

import contextlib
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from maskwright.training.device import processor_name

# What torch calls an instruction set, and what people call it; only what matters to matrix products is listed.
_INSTRUCTIONS = {
    "avx2": "AVX2",
    "fma3": "FMA",
    "avx512_f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "avx512_fp16": "AVX512_FP16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX_BF16",
    "amx_int8": "AMX_INT8",
    "neon": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
    "i8mm": "I8MM",
}
_ALLOCATOR_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A graphics card that PyTorch can use.

    Attributes:
        name: As its driver gives it.
        memory: Bytes.
        capability: Compute capability, e.g. "9.0".
        bf16: Whether it multiplies bfloat16 matrices itself.
    """

    name: str
    memory: int
    capability: str
    bf16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine as this process sees it.

    Attributes:
        system: Operating system and its kernel.
        processor: The processor's name as the system gives it.
        cores: Physical cores of the machine.
        usable_cores: Cores that this process may use (affinity and container limits), as a number of cores.
        threads: Threads that PyTorch computes with.
        instructions: Instruction sets that matter here, e.g. ("AVX2", "AVX512_BF16").
        memory: Bytes of main memory, or what the container allows.
        free_memory: Bytes available now; None where the system does not say.
        load: Processes that wanted to run, on average over the last minute; None where the system does not say.
        gpus: What PyTorch can use.
        card_without_torch: Whether there is an NVIDIA card that this PyTorch cannot use.
        allocator: Name of the memory allocator.
        allocator_settings: Environment variables that change it.
        huge_pages: "always", "madvise" or "never"; None where the system has none.
    """

    system: str
    processor: str
    cores: int
    usable_cores: float
    threads: int
    instructions: tuple[str, ...]
    memory: int
    free_memory: int | None
    load: float | None
    gpus: tuple[Gpu, ...]
    card_without_torch: bool
    allocator: str
    allocator_settings: Mapping[str, str] = field(default_factory=dict)
    huge_pages: str | None = None


def look_at_hardware() -> Hardware:
    """Describe the machine. Takes milliseconds, a second where a graphics card wakes up."""
    capabilities = torch.cpu.get_capabilities()
    gpus = tuple(_gpu(number) for number in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    return Hardware(
        system=platform.platform(),
        processor=processor_name(),
        cores=int(capabilities.get("num_physical_cores") or os.cpu_count() or 1),
        usable_cores=_usable_cores(),
        threads=torch.get_num_threads(),
        instructions=tuple(name for key, name in _INSTRUCTIONS.items() if capabilities.get(key)),
        memory=_memory(),
        free_memory=_free_memory(),
        load=_load(),
        gpus=gpus,
        card_without_torch=not gpus and Path("/dev/nvidia0").exists(),
        allocator=_allocator(os.environ),
        allocator_settings={
            name: value
            for name, value in sorted(os.environ.items())
            if name in _ALLOCATOR_VARIABLES or name.startswith("MALLOC_")
        },
        huge_pages=_huge_pages(),
    )


def busy_cores(seconds: float = 0.25) -> float | None:
    """Wait, and return how many cores were busy meanwhile: with other things, since this process waits.

    Args:
        seconds: How long to watch.

    Returns:
        Busy cores on average, those taken by other guests of the same host counted; None where the system does not say.
    """
    before = _processor_ticks()
    time.sleep(seconds)
    after = _processor_ticks()
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1]) * (os.cpu_count() or 1)


def _processor_ticks() -> tuple[int, int] | None:
    """Return (busy, all) ticks of all cores since the machine began."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/stat", encoding="ascii") as file:
            # user nice system idle iowait irq softirq steal; what follows is counted in user already
            ticks = [int(number) for number in file.readline().split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
    return None


def _gpu(number: int) -> Gpu:
    properties = torch.cuda.get_device_properties(number)
    return Gpu(
        name=properties.name,
        memory=properties.total_memory,
        capability=f"{properties.major}.{properties.minor}",
        bf16=properties.major >= 8,  # Ampere; older cards emulate it
    )


def _usable_cores() -> float:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_LIMIT.read_text().split()
        return min(float(allowed), int(quota) / int(period))  # "max" of an unlimited group is no number
    return float(allowed)


def _memory() -> int:
    total = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            allowed = int(limit.read_text())
            return min(total, allowed) if total else allowed
    return total


def _free_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _load() -> float | None:
    with contextlib.suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def _allocator(environment: Mapping[str, str]) -> str:
    loaded = environment.get("LD_PRELOAD", "")
    for name in _OTHER_ALLOCATORS:
        if name in loaded:
            return name
    library, version = platform.libc_ver()  # empty where the system has no such library, as on macOS
    return f"{library} {version}".strip() or "the system's"


def _huge_pages() -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return _HUGE_PAGES.read_text().split("[")[1].split("]")[0]
    return None
