"""The machine at hand: where to train, which matrix-product library is faster, and what its peak is."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from maskwright.core.devices import choose_device
from maskwright.core.errors import DeviceError
from maskwright.core.files import cache_folder, read_json, write_json
from maskwright.core.spec import fingerprint
from maskwright.training.allocator import keep_freed_memory

MatmulLibrary = Literal["default", "onednn"]
Precision = Literal["auto", "fp32", "bf16"]

_SIDES = (2048, 512, 1024)
_REPETITIONS = 15
_WORTH = 1.25
_ACCURATE = 1e-5
_PRECISION = {"default": "none", "onednn": "bf16"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run uses.

    Attributes:
        device: Where it trains.
        name: The processor's or GPU's name as the system gives it.
        threads: Threads that PyTorch computes with (CPU).
        matmul: "default", or "onednn" where that library multiplies fp32 matrices faster and as exactly.
        peak_flops: Measured multiply-add operations x 2 a second of a large matrix product in the run's precision.
        autocast: bfloat16 for matrix products, on a GPU that has it or where it was asked for; else None (fp32).
    """

    device: torch.device
    name: str
    threads: int
    matmul: MatmulLibrary
    peak_flops: float
    autocast: torch.dtype | None

    @property
    def precision(self) -> Precision:
        """What matrix products are computed in; weights and sums are fp32 always."""
        return "fp32" if self.autocast is None else "bf16"

    @property
    def tokens_per_microbatch(self) -> int:
        """Slots of a forward and backward pass: what keeps the device busy and its caches or memory unstrained."""
        if self.device.type == "cpu":
            return 2048
        # Reckoned, not measured: a large model keeps about 1 MB of activations a token.
        free, _ = torch.cuda.mem_get_info(self.device)
        return max(2048, min(65536, free // (4 << 20)))


def prepare_machine(
    device: str = "auto",
    matmul: MatmulLibrary | None = None,
    cache: Path | None = None,
    precision: Precision = "auto",
) -> Machine:
    """Choose the device and, on a CPU, the faster matrix-product library; have memory kept. Takes under a second.

    PyTorch's CPU build multiplies fp32 matrices with its vendor library; on processors of another vendor oneDNN can be
    up to twice as fast. The switch that sends fp32 products there allows reduced precision on some machines, so it is
    taken only if it is at least 25 % faster and a product's relative error stays below 1e-5. The two round
    differently, so the choice is made once a machine and kept in the cache: runs must not depend on a stopwatch.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        matmul: The library that a run began with; None chooses.
        cache: Where the choice is kept; None for the user's cache folder.
        precision: "fp32", "bf16" for matrix products (the weights stay fp32), or "auto": bf16 on a GPU that has it.

    Raises:
        DeviceError: If there is no such device, no such precision, or the device does not have it.
    """
    if precision not in get_args(Precision):
        raise DeviceError(f"unknown precision {precision!r}", allowed=", ".join(get_args(Precision)))
    chosen = choose_device(device)
    threads = torch.get_num_threads()
    has_bf16 = multiplies_bf16(chosen)
    if precision == "bf16" and not has_bf16:
        raise DeviceError(
            f"the device {chosen} does not multiply bf16 numbers by itself: emulated, they are slower than fp32",
            todo="Leave --precision out.",
        )
    half = torch.bfloat16
    if chosen.type == "cuda":
        autocast = half if has_bf16 and precision != "fp32" else None
        peak = _operations_a_second(chosen, autocast or torch.float32, 4)
        return Machine(chosen, torch.cuda.get_device_name(chosen), threads, "default", peak, autocast)
    if chosen.type != "cpu":
        raise DeviceError(f"training on {chosen.type!r} is not supported", allowed="cpu, cuda")
    keep_freed_memory()
    name = processor_name()
    library = matmul or _kept_choice(name, threads, cache or cache_folder())
    cpu_autocast = half if precision == "bf16" else None
    with matmul_library(library):
        peak = _operations_a_second(chosen, cpu_autocast or torch.float32)
        return Machine(chosen, name, threads, library, peak, cpu_autocast)


def multiplies_bf16(device: torch.device) -> bool:
    """Say whether a device multiplies bfloat16 matrices by itself; emulated, they are slower than fp32 ones."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    # Only says so where the processor has the instructions (AVX512_BF16 or AMX; on ARM, BF16).
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextlib.contextmanager
def matmul_library(library: MatmulLibrary) -> Iterator[None]:
    """Let fp32 matrix products on the CPU run in a library while the block runs."""
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = settings.fp32_precision
    settings.fp32_precision = _PRECISION[library]
    try:
        yield
    finally:
        settings.fp32_precision = before


def processor_name() -> str:
    """Return the processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def _kept_choice(name: str, threads: int, cache: Path) -> MatmulLibrary:
    path = cache / f"machine-{fingerprint([name, threads, torch.__version__])}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if (kept := read_json(path)["matmul"]) in _PRECISION:
            library: MatmulLibrary = kept
            return library
    chosen = _faster_library()
    with contextlib.suppress(DeviceError):  # A cache that cannot be written costs a second next time, no more.
        write_json(path, {"processor": name, "threads": threads, "torch": torch.__version__, "matmul": chosen})
    return chosen


def _faster_library() -> MatmulLibrary:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "default"
    best: dict[MatmulLibrary, float] = {"default": 0.0, "onednn": 0.0}
    cpu = torch.device("cpu")
    for library in (*best, *best):  # Interleaved: a busy machine then slows both.
        with matmul_library(library):
            best[library] = max(best[library], _operations_a_second(cpu, torch.float32))
    with matmul_library("onednn"):
        accurate = _relative_error() < _ACCURATE
    return "onednn" if accurate and best["onednn"] > _WORTH * best["default"] else "default"


def _operations_a_second(device: torch.device, dtype: torch.dtype, scale: int = 1) -> float:
    rows, inner, columns = (side * scale for side in _SIDES)
    left = torch.ones(rows, inner, device=device, dtype=dtype)
    right = torch.ones(columns, inner, device=device, dtype=dtype)
    best = math.inf
    for _ in range(_REPETITIONS):
        begun = time.perf_counter()
        torch.nn.functional.linear(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    # The best time, not the median: a peak is what the machine can do when nothing else disturbs it.
    return 2.0 * rows * inner * columns / best


def _relative_error() -> float:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    return float(((left @ right).double() - exact).abs().max() / exact.abs().max())
