"""What arithmetic and memory of this machine can do: products of matrices and copies, timed for about a second.

Nothing is kept or changed: a probe times, restores the settings it needed and returns plain numbers. Whoever asks
decides what follows from them.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from maskwright.core.products import Setting, fp32_products

# (rows, inner, columns): the feed-forward products of a base encoder and of a small one, over 2048 tokens. Which of the
# two is nearer to the peak depends on the caches.
SHAPES = ((2048, 768, 3072), (2048, 512, 1024))
_GPU_SCALE = 4
# (rows, inner, columns) of a layer's products, as `SHAPES`, and (batch, rows, inner, columns) of its attention's.
_LAYERS = ((1024, 256, 1024), (1024, 768, 3072))
_HEADS = (64, 64, 64, 64)
_CHECKED = (512, 256, 384)
_COPIED = 64 << 20
# The oneDNN setting of torch that each kind of product stands for (torch.backends.mkldnn.matmul.fp32_precision). "bf16"
# lets oneDNN multiply fp32 matrices; whether it rounds them to bfloat16 then depends on the processor, which is why the
# error is measured too.
_SETTINGS: Mapping[str, Setting] = {"fp32": "none", "fp32_onednn": "bf16", "bf16": "none"}
_KINDS = {"fp32": torch.float32, "fp32_onednn": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class MatmulRate:
    """One way to multiply matrices.

    Attributes:
        flops: Operations a second (a multiply and an add are two), the best of all repetitions.
        error: Largest error of a product of random matrices against fp64, as a share of its largest entry.
    """

    flops: float
    error: float


def probe_matmul(
    device: torch.device = torch.device("cpu"), seconds: float = 0.9, kinds: Sequence[str] | None = None
) -> dict[str, MatmulRate]:
    """Time products of matrices, in turns, and compare one of each kind with fp64.

    Args:
        device: Where.
        seconds: For all repetitions, roughly; each kind gets two rounds even where that takes longer.
        kinds: Which; None for all that the device has.

    Returns:
        By kind: "fp32" (the default library), "fp32_onednn" (oneDNN on fp32 matrices; CPU only, where it is built in)
        and "bf16" (bfloat16 matrices).
    """
    if kinds is None:
        kinds = ("fp32", "fp32_onednn", "bf16") if has_onednn(device) else ("fp32", "bf16")
    operands = {kind: [_operands(shape, _KINDS[kind], device) for shape in _shapes(device)] for kind in kinds}
    best = dict.fromkeys(kinds, 0.0)
    begun, rounds = time.perf_counter(), 0
    while rounds < 2 or time.perf_counter() - begun < seconds:
        for kind in kinds:  # In turns: what disturbs the machine then disturbs all.
            with products_by(kind):
                for left, right in operands[kind]:
                    took = _seconds(partial(torch.nn.functional.linear, left, right), device)
                    best[kind] = max(best[kind], 2.0 * left.numel() * len(right) / took)
        rounds += 1
    return {kind: MatmulRate(best[kind], probe_error(kind, device)) for kind in kinds}


def probe_layers(seconds: float = 0.7) -> dict[str, float]:
    """Time the fp32 products that a layer is trained with, on the CPU, by library and in turns.

    Those of a dense layer (its output, the gradients of its inputs and of its weights) at two widths, and attention's
    batched ones: which library is faster differs between them.

    Args:
        seconds: For all repetitions, roughly; there are at least two rounds.

    Returns:
        Seconds by kind, "fp32" and "fp32_onednn": the best of each product, summed.
    """
    cpu = torch.device("cpu")
    products: list[Callable[[], object]] = []
    for shape in _LAYERS:
        inputs, weight = _operands(shape, torch.float32, cpu)
        slopes = inputs @ weight.T
        products += [
            partial(torch.nn.functional.linear, inputs, weight),
            partial(torch.mm, slopes, weight),
            partial(torch.mm, slopes.T, inputs),
        ]
    batch, rows, inner, columns = _HEADS
    left, right = _operands((batch * rows, inner, batch * columns), torch.float32, cpu)
    products.append(partial(torch.bmm, left.view(batch, rows, inner), right.view(batch, columns, inner).mT))
    best = {kind: [math.inf] * len(products) for kind in ("fp32", "fp32_onednn")}
    begun, rounds = time.perf_counter(), 0
    while rounds < 2 or time.perf_counter() - begun < seconds:
        for kind, its in best.items():
            with products_by(kind):
                for number, product in enumerate(products):
                    its[number] = min(its[number], _seconds(product, cpu))
        rounds += 1
    return {kind: sum(its) for kind, its in best.items()}


def has_onednn(device: torch.device) -> bool:
    """Say whether oneDNN can multiply matrices there: on a CPU, where PyTorch was built with it."""
    return device.type == "cpu" and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def probe_bandwidth(device: torch.device = torch.device("cpu"), seconds: float = 0.2) -> float:
    """Time copies of a block too large for the caches; return the bytes read and written a second, at best.

    Args:
        device: Where.
        seconds: For all repetitions, roughly; there are at least three.
    """
    count = _COPIED * (_GPU_SCALE if device.type == "cuda" else 1) // 4
    source, target = torch.ones(count, device=device), torch.zeros(count, device=device)
    best, begun, repetitions = math.inf, time.perf_counter(), 0
    while repetitions < 3 or time.perf_counter() - begun < seconds:
        best = min(best, _seconds(lambda: target.copy_(source), device))
        repetitions += 1
    return 2.0 * source.numel() * source.element_size() / best


@contextlib.contextmanager
def products_by(kind: str) -> Iterator[None]:
    """Let fp32 products on the CPU be computed as a kind of `probe_matmul` says while the block runs."""
    with fp32_products(_SETTINGS[kind]):
        yield


def _shapes(device: torch.device) -> list[tuple[int, int, int]]:
    scale = _GPU_SCALE if device.type == "cuda" else 1
    return [(scale * rows, scale * inner, scale * columns) for rows, inner, columns in SHAPES]


def _operands(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # Random numbers: on some processors a product of equal ones draws less power and is faster than real work.
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


def probe_error(kind: str, device: torch.device = torch.device("cpu")) -> float:
    """Return the largest error of a product of a kind against fp64, as a share of its largest entry."""
    left, right = _operands(_CHECKED, torch.float32, device)
    with products_by(kind):
        found = torch.nn.functional.linear(left.to(_KINDS[kind]), right.to(_KINDS[kind]))
    exact = left.double() @ right.double().T
    return float((found.double() - exact).abs().max() / exact.abs().max())
