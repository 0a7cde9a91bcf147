"""`maskwright.doctor`: what this machine is and can do at best, what is used of it here, and what would help."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from maskwright.core.errors import DeviceError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.spec import fingerprint
from maskwright.kernels.attention import choose_backend
from maskwright.kernels.cpu.fp32 import CODE as FP32
from maskwright.kernels.cpu.int8_support import Int8Support, int8_support
from maskwright.kernels.cuda.runs import takes_own
from maskwright.training.device import Machine, Precision, prepare_machine
from maskwright.training.hardware import Hardware, busy_cores, look_at_hardware
from maskwright.training.probe import MatmulRate, probe_bandwidth, probe_matmul

_VERSION = 1
_WIDTHS = (256, 768)
_LENGTHS = (128, 512, 1024)
_HEAD_SIZE = 64
"""Of nearly all published encoders."""
_BUSY = 0.15
"""Share of the cores busy with other things from which measured speeds are not to be trusted."""
_WORTH = 1.25
_LITTLE_MEMORY = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a device can do at best.

    Attributes:
        matmul: Products of matrices by kind (`probe.probe_matmul`).
        bandwidth: Bytes read and written a second in a large copy.
        measured: When, in UTC, as ISO 8601.
        busy: Cores that were busy with other things just before; None where the system does not say.
    """

    matmul: Mapping[str, MatmulRate]
    bandwidth: float
    measured: str
    busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What training uses on this machine.

    Attributes:
        device: Where it computes.
        threads: Threads of PyTorch.
        precision: Type of the matrix products: "fp32" or "bf16".
        matmul: Library of fp32 products on the CPU: "default" or "onednn".
        attention: Backend by what it is for, e.g. {"length 128, with dropout": "rows"}.
        allocator: The memory allocator and what it was told.
        tokens_per_microbatch: Slots of a forward and backward pass, by the hidden size of the encoder.
    """

    device: str
    threads: int
    precision: str
    matmul: str
    attention: Mapping[str, str]
    allocator: str
    tokens_per_microbatch: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that the doctor found.

    Attributes:
        hardware: What the machine is.
        peaks: What its devices can do, by device ("cpu", "cuda:0").
        usage: What training will use.
        int8: What computes 8-bit numbers where a model is used with `--precision int8`.
        advice: What would help, a sentence each; empty if nothing is known to.
        kept: Whether the peaks were measured at an earlier call.
    """

    hardware: Hardware
    peaks: Mapping[str, Peaks]
    usage: Usage
    int8: Int8Support
    advice: tuple[str, ...]
    kept: bool

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)


def doctor(
    device: str = "auto", *, precision: Precision = "auto", fresh: bool = False, cache: Path | None = None
) -> Diagnosis:
    """Look at this machine. One to two seconds of measuring the first time; the figures are kept, unless
    the machine was busy with other things.

    Args:
        device: What to ask training for: "auto", "cpu", "cuda" or "cuda:N".
        precision: The same: "auto", "fp32" or "bf16".
        fresh: Measure again even if figures for this machine are kept.
        cache: Where they are kept; None for the user's cache folder.

    Raises:
        DeviceError: If there is no such device, or it does not have that precision.

    Example:
        >>> maskwright.doctor().peaks["cpu"].matmul["fp32"].flops / 1e9  # doctest: +SKIP
        215.3
    """
    cache = cache or cache_folder()
    hardware = look_at_hardware()
    machine = prepare_machine(device, cache=cache, precision=precision)
    peaks, kept = _kept_peaks(hardware, cache, fresh)
    usage, int8 = usage_of(machine, hardware), int8_support()
    advice = (
        *advise(hardware, peaks, usage),
        *_fp32_advice(FP32.problem()),
        *_int8_advice(int8),
    )
    return Diagnosis(hardware=hardware, peaks=peaks, usage=usage, int8=int8, advice=advice, kept=kept)


def measure_peaks(hardware: Hardware) -> dict[str, Peaks]:
    """Measure the processor and every graphics card."""
    busy = busy_cores()
    devices = [torch.device("cpu"), *(torch.device("cuda", number) for number in range(len(hardware.gpus)))]
    return {
        str(device): Peaks(
            matmul=probe_matmul(device),
            bandwidth=probe_bandwidth(device),
            measured=datetime.now(UTC).isoformat(timespec="seconds"),
            busy=busy,
        )
        for device in devices
    }


def usage_of(machine: Machine, hardware: Hardware) -> Usage:
    """Say in words what training uses.

    Args:
        machine: What training was given.
        hardware: The machine it stands on.
    """
    kind, dtype = machine.device.type, machine.autocast or torch.float32

    def backend(length: int, drops: bool) -> str:
        if kind == "cuda" and machine.kernels == "auto":
            return "kernels" if takes_own(length, _HEAD_SIZE) else "flash"
        return choose_backend(length, kind, dtype, drops=drops)

    attention = {
        f"length {length}, {'with' if drops else 'without'} dropout": backend(length, drops)
        for length in _LENGTHS
        for drops in (True, False)
    }
    told = " ".join(f"{name}={value}" for name, value in hardware.allocator_settings.items())
    return Usage(
        device=str(machine.device),
        threads=machine.threads,
        precision=machine.precision,
        matmul=machine.matmul,
        attention=attention,
        allocator=f"{hardware.allocator} ({told})" if told else hardware.allocator,
        tokens_per_microbatch={width: machine.tokens_per_microbatch(width) for width in _WIDTHS},
    )


def advise(hardware: Hardware, peaks: Mapping[str, Peaks], usage: Usage) -> tuple[str, ...]:
    """Say what would make training faster here.

    Args:
        hardware: What the machine is.
        peaks: What it can do.
        usage: What training uses.
    """
    told = [*_threads_advice(hardware), *_device_advice(hardware, usage)]
    if usage.device == "cpu":
        told += _memory_advice(hardware)
    if _disturbed(peaks, hardware):
        busy = max(each.busy or 0.0 for each in peaks.values())
        told.append(
            f"The machine was busy when its speeds were measured ({busy:.1f} of {hardware.usable_cores:g} cores with "
            "other things): they are too low, and are not kept. Ask again when it is quiet."
        )
    else:  # Nothing is to be learnt from disturbed speeds.
        told += [*_library_advice(peaks, usage), *_precision_advice(peaks, usage)]
    return tuple(told)


def _disturbed(peaks: Mapping[str, Peaks], hardware: Hardware) -> bool:
    """Whether other things were at work while the peaks were measured."""
    return any(each.busy is not None and each.busy > _BUSY * hardware.usable_cores for each in peaks.values())


def _threads_advice(hardware: Hardware) -> list[str]:
    cores, threads = hardware.usable_cores, hardware.threads
    asked = os.environ.get("OMP_NUM_THREADS")
    if threads < int(cores):
        cause = f" because OMP_NUM_THREADS is {asked}: unset it" if asked else ": set OMP_NUM_THREADS to the latter"
        return [f"PyTorch computes with {threads} of {cores:g} cores{cause}."]
    if threads > max(1, round(cores)):
        return [
            f"PyTorch computes with {threads} threads on {cores:g} cores, where they wait for each other: set "
            f"OMP_NUM_THREADS={max(1, int(cores))}."
        ]
    return []


def _device_advice(hardware: Hardware, usage: Usage) -> list[str]:
    if hardware.card_without_torch:
        return [
            "There is an NVIDIA card, but this PyTorch cannot use it: install a PyTorch built for CUDA, and the card's "
            "driver."
        ]
    if hardware.gpus and usage.device == "cpu":
        return [f"There is a {hardware.gpus[0].name}: training on it (`--device cuda`) is many times faster."]
    return []


def _precision_advice(peaks: Mapping[str, Peaks], usage: Usage) -> list[str]:
    rates = peaks["cpu"].matmul if "cpu" in peaks else {}
    if usage.device != "cpu" or usage.precision != "fp32" or "bf16" not in rates:
        return []
    fp32 = rates["fp32_onednn" if usage.matmul == "onednn" and "fp32_onednn" in rates else "fp32"].flops
    gain = rates["bf16"].flops / fp32
    if gain <= _WORTH:
        return []
    return [
        f"Matrix products in bf16 are {gain:.1f} times as fast as the fp32 ones in use: `--precision bf16` (weights "
        "and sums stay fp32)."
    ]


def _library_advice(peaks: Mapping[str, Peaks], usage: Usage) -> list[str]:
    rates = peaks["cpu"].matmul if "cpu" in peaks else {}
    if usage.device != "cpu" or "fp32_onednn" not in rates:
        return []
    gain = rates["fp32_onednn"].flops / rates["fp32"].flops
    again = "Delete machine-*.json in the cache folder to have the choice made again, in new runs."
    if usage.matmul == "default" and gain > _WORTH and rates["fp32_onednn"].error < 1e-5:
        return [f"oneDNN multiplies fp32 matrices {gain:.1f} times as fast, but the default library is in use. {again}"]
    if usage.matmul == "onednn" and gain < 1 / _WORTH:
        return [f"The default library multiplies fp32 matrices {1 / gain:.1f} times as fast as oneDNN. {again}"]
    return []


def _memory_advice(hardware: Hardware) -> list[str]:
    told = []
    if hardware.free_memory is not None and hardware.free_memory < _LITTLE_MEMORY:
        told.append(f"Only {hardware.free_memory / (1 << 30):.1f} GiB of memory are free: close other programs.")
    plain = hardware.allocator.startswith("glibc") and "GLIBC_TUNABLES" not in hardware.allocator_settings
    if plain and hardware.huge_pages == "madvise":
        told.append(
            "Large tensors may gain from huge pages, which the C library asks for only if it is told to: start with "
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1."
        )
    if hardware.huge_pages == "never":
        told.append(
            "Huge pages are switched off, and large tensors gain from them: an administrator can write `madvise` to "
            "/sys/kernel/mm/transparent_hugepage/enabled."
        )
    return told


def _fp32_advice(problem: DeviceError | None) -> list[str]:
    if problem is None or not problem.todo:
        return []
    return [f"Native kernels for inference in fp32 are unavailable: {problem.problem}. {problem.todo}"]


def _int8_advice(int8: Int8Support) -> list[str]:
    if not int8.todo:
        return []
    return [
        f"`--precision int8` is computed by PyTorch's libraries, since {int8.why}; by our own code it is faster. "
        f"{int8.todo}"
    ]


def _kept_peaks(hardware: Hardware, cache: Path, fresh: bool) -> tuple[dict[str, Peaks], bool]:
    """Return the peaks, and whether they were kept from an earlier call."""
    path = cache / f"doctor-{_machine_key(hardware)}.json"
    if not fresh:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            return {device: _peaks(each) for device, each in read_json(path)["peaks"].items()}, True
    peaks = measure_peaks(hardware)
    if not _disturbed(peaks, hardware):
        with contextlib.suppress(DeviceError):  # A cache that cannot be written costs a second next time, no more.
            write_json(path, {"peaks": {device: dataclasses.asdict(each) for device, each in peaks.items()}})
    return peaks, False


def _machine_key(hardware: Hardware) -> str:
    """Identify the machine: all that its speed depends on and that does not change from call to call."""
    lasting = ("processor", "cores", "usable_cores", "threads", "instructions", "allocator", "allocator_settings")
    cards = [[card.name, card.memory] for card in hardware.gpus]
    return fingerprint([_VERSION, torch.__version__, *(getattr(hardware, name) for name in lasting), cards])


def _peaks(data: Mapping[str, Any]) -> Peaks:
    return Peaks(**{**data, "matmul": {kind: MatmulRate(**rate) for kind, rate in data["matmul"].items()}})
