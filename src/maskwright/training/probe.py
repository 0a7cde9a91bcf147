"""Timing and accuracy of matrix multiplication on this machine."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from maskwright.core.matmul import Setting, fp32_matmul_setting

MatmulLibrary = Literal["default", "onednn"]
SETTINGS: dict[MatmulLibrary, Setting] = {"default": "none", "onednn": "bf16"}
"""torch.backends.mkldnn.matmul.fp32_precision by library. "bf16" sends fp32 matrices to oneDNN; whether it then rounds
them to bfloat16 depends on the processor, so `matmul_error` checks it."""

# (rows, inner, columns): feed-forward matmuls of a base and of a small encoder. Caches decide which is faster.
_PEAK_SHAPES = ((2048, 768, 3072), (2048, 512, 1024))
_GPU_SCALE = 4
# The same of the layers that compare libraries, and (batch, rows, inner, columns) of their attention.
_LAYER_SHAPES = ((1024, 256, 1024), (1024, 768, 3072))
_ATTENTION_SHAPE = (64, 64, 64, 64)
_ERROR_SHAPE = (512, 256, 384)
_ROUNDS = 2


def peak_matmul_flops(
    device: torch.device, dtype: torch.dtype = torch.float32, library: MatmulLibrary = "default", seconds: float = 0.2
) -> float:
    """Return the FLOP/s of the fastest large matmul (multiply and add count as two) in about `seconds`."""
    scale = _GPU_SCALE if device.type == "cuda" else 1
    pairs = [
        _operands((scale * rows, scale * inner, scale * columns), dtype, device)
        for rows, inner, columns in _PEAK_SHAPES
    ]
    best, begun, rounds = 0.0, time.perf_counter(), 0
    with fp32_matmul_setting(SETTINGS[library]):
        while rounds < _ROUNDS or time.perf_counter() - begun < seconds:
            for left, right in pairs:
                took = _seconds(partial(torch.nn.functional.linear, left, right), device)
                best = max(best, 2.0 * left.numel() * len(right) / took)
            rounds += 1
    return best


def layer_seconds(seconds: float = 0.7) -> dict[MatmulLibrary, float]:
    """Time the fp32 matmuls of training a layer on the CPU with each library; the best of each matmul, summed.

    They are a dense layer's output, input gradient and weight gradient at two widths, and attention's batched matmul:
    which library is faster differs between them. Libraries alternate, so that a disturbance affects both.
    """
    cpu = torch.device("cpu")
    matmuls: list[Callable[[], Tensor]] = []
    for shape in _LAYER_SHAPES:
        inputs, weight = _operands(shape, torch.float32, cpu)
        grad = inputs @ weight.T
        matmuls += [
            partial(torch.nn.functional.linear, inputs, weight),
            partial(torch.mm, grad, weight),
            partial(torch.mm, grad.T, inputs),
        ]
    batch, rows, inner, columns = _ATTENTION_SHAPE
    left, right = _operands((batch * rows, inner, batch * columns), torch.float32, cpu)
    matmuls.append(partial(torch.bmm, left.view(batch, rows, inner), right.view(batch, columns, inner).mT))
    best = {library: [math.inf] * len(matmuls) for library in SETTINGS}
    begun, rounds = time.perf_counter(), 0
    while rounds < _ROUNDS or time.perf_counter() - begun < seconds:
        for library, times in best.items():
            with fp32_matmul_setting(SETTINGS[library]):
                for number, matmul in enumerate(matmuls):
                    times[number] = min(times[number], _seconds(matmul, cpu))
        rounds += 1
    return {library: sum(times) for library, times in best.items()}


def has_onednn(device: torch.device) -> bool:
    """Whether oneDNN can multiply matrices there: on a CPU, if PyTorch was built with it."""
    return device.type == "cpu" and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def matmul_error(library: MatmulLibrary) -> float:
    """Return the largest error of an fp32 matmul on the CPU against fp64, relative to the largest entry."""
    left, right = _operands(_ERROR_SHAPE, torch.float32, torch.device("cpu"))
    with fp32_matmul_setting(SETTINGS[library]):
        found = torch.nn.functional.linear(left, right)
    exact = left.double() @ right.double().T
    return float((found.double() - exact).abs().max() / exact.abs().max())


def _operands(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # Random numbers: constant matrices draw less power on some processors and are multiplied faster than real ones.
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, inner, generator=generator) for size in (rows, columns))
    return left.to(device, dtype), right.to(device, dtype)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
