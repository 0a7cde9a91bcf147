"""`maskwright.doctor`: the hardware, its measured peak speed, the configuration of training on it, and advice."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskwright.kernels import ops
from maskwright.machine.threads import cpu_quota
from maskwright.training.ranks import device as machines
from maskwright.training.ranks.device import (
    Machine,
    Precision,
    has_onednn,
    multiplies_bf16,
    prepare_machine,
    processor_name,
)

_INSTRUCTIONS = ("avx2", "avx512_f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "neon", "bf16", "i8mm")
"""Instruction sets that matter to matmul, as torch names them."""
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_LITTLE_MEMORY = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine as this process sees it.

    Attributes:
        usable_cores: Cores that this process may use (affinity and container limits).
        memory: Bytes of main memory, or of the container's limit.
        free_memory: Bytes available now; None if unknown.
        unusable_gpu: Whether there is an NVIDIA GPU that this PyTorch cannot use.
    """

    processor: str
    cores: int
    usable_cores: float
    threads: int
    instructions: tuple[str, ...]
    memory: int
    free_memory: int | None
    gpus: tuple[str, ...]
    unusable_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The result of `doctor`.

    Attributes:
        peak_flops: Measured matmul FLOP/s by device ("cpu", "cuda:0") and kind: "fp32", "fp32_onednn", "bf16".
        training: Device, precision, matmul library and kernels that training will use.
        int8: Why `--precision int8` is unavailable; empty if it is available.
        advice: One sentence for each known improvement.
    """

    hardware: Hardware
    peak_flops: Mapping[str, Mapping[str, float]]
    training: Mapping[str, str]
    int8: str
    advice: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def doctor(device: str = "auto", *, precision: Precision = "auto", cache: Path | None = None) -> Diagnosis:
    """Describe this machine and training on a device; takes about a second.

    Args:
        device: Device of the training: auto, cpu, cuda or cuda:N.
        precision: Precision of the training.

    Raises DeviceError if there is no such device, or it does not have that precision.
    """
    hardware = read_hardware()
    machine = prepare_machine(device, cache=cache, precision=precision)
    peaks = measure_peaks()
    problems = {"fp32": ops.inference_problem("fp32"), "int8": ops.inference_problem("int8")}
    no_int8 = ops.int8_problem()
    advice = [*advise(hardware, machine)]
    for name, problem in problems.items():
        if problem is not None and problem.hint:
            advice.append(f"Kernels for inference in {name} are unavailable: {problem.problem}. {problem.hint}")
    int8 = "" if no_int8 is None else no_int8.problem
    return Diagnosis(hardware=hardware, peak_flops=peaks, training=machine.to_json(), int8=int8, advice=tuple(advice))


def read_hardware() -> Hardware:
    """Read what the system says about the machine."""
    capabilities = torch.cpu.get_capabilities()
    gpus = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(number)
        gpus.append(f"{properties.name}, {properties.total_memory / (1 << 30):.0f} GiB")
    return Hardware(
        processor=processor_name(),
        cores=int(capabilities.get("num_physical_cores") or os.cpu_count() or 1),
        usable_cores=_usable_cores(),
        threads=torch.get_num_threads(),
        instructions=tuple(name for name in _INSTRUCTIONS if capabilities.get(name)),
        memory=_memory(),
        free_memory=_free_memory(),
        gpus=tuple(gpus),
        unusable_gpu=not gpus and Path("/dev/nvidia0").exists(),
    )


def measure_peaks() -> dict[str, dict[str, float]]:
    """Measure the matmul speed of the CPU and every GPU (`Diagnosis.peak_flops`)."""
    cpu = torch.device("cpu")
    peaks = {}
    for device in (cpu, *(torch.device("cuda", number) for number in range(torch.cuda.device_count()))):
        rates = peaks[str(device)] = {"fp32": machines.peak_matmul_flops(device)}
        if has_onednn(device):
            rates["fp32_onednn"] = machines.peak_matmul_flops(device, library="onednn")
        if multiplies_bf16(device):
            rates["bf16"] = machines.peak_matmul_flops(device, torch.bfloat16)
    return peaks


def advise(hardware: Hardware, machine: Machine) -> Iterator[str]:
    """Yield a sentence for each known way to train faster on this machine."""
    cores, threads = hardware.usable_cores, hardware.threads
    if threads < int(cores):
        limit = os.environ.get("OMP_NUM_THREADS")
        cause = f" because OMP_NUM_THREADS is {limit}: unset it" if limit else f": set OMP_NUM_THREADS={int(cores)}"
        yield f"PyTorch uses {threads} of {cores:g} cores{cause}."
    elif threads > max(1, round(cores)):
        yield (
            f"PyTorch uses {threads} threads on {cores:g} cores, where they wait for each other: set "
            f"OMP_NUM_THREADS={max(1, int(cores))}."
        )
    if hardware.unusable_gpu:
        yield "There is an NVIDIA GPU that this PyTorch cannot use: install a CUDA build of PyTorch and the driver."
    if machine.device.type != "cpu":
        return
    if hardware.gpus:
        yield f"There is a {hardware.gpus[0]}: training on it (`--device cuda`) is many times faster."
    if hardware.free_memory is not None and hardware.free_memory < _LITTLE_MEMORY:
        yield f"Only {hardware.free_memory / (1 << 30):.1f} GiB of memory are free: close other programs."


def _usable_cores() -> float:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(float(allowed), cpu_quota() or float(allowed))


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max" if unlimited
            return min(total, int(limit.read_text()))
    return total


def _free_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None
