"""The device at hand: where to train, which matrix-product library is faster, and what its peak is."""

import math
import time
from dataclasses import dataclass
from typing import Literal

import torch

_SIDES = (2048, 512, 1024)
_REPETITIONS = 15
_WORTH = 1.15
_ACCURATE = 1e-5


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run uses.

    Attributes:
        device: "cpu" or "cuda".
        name: The processor's or GPU's name as the system gives it.
        threads: Threads that PyTorch computes with (CPU).
        matmul: "default", or "onednn" where that library multiplies fp32 matrices faster and as exactly.
        peak_flops: Measured multiply-add operations x 2 a second of a large matrix product in the run's precision.
        autocast: bfloat16 on a GPU that has it, else None (fp32).
    """

    device: torch.device
    name: str
    threads: int
    matmul: Literal["default", "onednn"]
    peak_flops: float
    autocast: torch.dtype | None

    @property
    def tokens_per_microbatch(self) -> int:
        """Slots of a forward and backward pass: what keeps the device busy and its caches or memory unstrained."""
        return 2048 if self.device.type == "cpu" else 65536


def prepare_machine(device: Literal["auto", "cpu", "cuda"] = "auto") -> Machine:
    """Choose the device and, on a CPU, the faster matrix-product library. Takes under a second.

    PyTorch's CPU build multiplies fp32 matrices with its vendor library; on processors of another vendor oneDNN can be
    up to twice as fast. The switch that sends fp32 products there allows reduced precision on some machines, so it is
    taken only if it is at least 15 % faster and a product's relative error stays below 1e-5.
    """
    use_gpu = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if use_gpu:
        chosen = torch.device("cuda")
        autocast = torch.bfloat16 if torch.cuda.is_bf16_supported() else None
        peak = _operations_a_second(chosen, autocast or torch.float32, 4)
        return Machine(chosen, torch.cuda.get_device_name(), torch.get_num_threads(), "default", peak, autocast)
    chosen = torch.device("cpu")
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set up at run time
    before = settings.fp32_precision
    plain = _operations_a_second(chosen, torch.float32)
    matmul: Literal["default", "onednn"] = "default"
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        settings.fp32_precision = "bf16"
        other = _operations_a_second(chosen, torch.float32)
        if other > _WORTH * plain and _relative_error() < _ACCURATE:
            matmul, plain = "onednn", other
        else:
            settings.fp32_precision = before
    return Machine(chosen, _processor_name(), torch.get_num_threads(), matmul, plain, None)


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


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()
