"""Dropout whose masks are a function of a key, not of a generator's state (Srivastava et al. 2014).

The mask of a value is a hash of (the micro-batch's key, the number of the call within the forward pass, the
value's position). So a resumed run, a run on another number of ranks and a recomputed forward pass drop the same
values, on every device. The hash is the SplitMix64 finaliser (Steele, Lea and Flood 2014) over a counter; each
64-bit result serves four values with 16 bits each. It is made of plain integer tensor operations, because they
run on all cores and all devices, and cost a fraction of what PyTorch's own sequential Bernoulli generator does on a CPU.
"""

import math
from typing import Any

import torch
from torch import Tensor

_STEPS = 1 << 16
# The constants of SplitMix64 and of its finaliser, as the signed integers that tensors hold.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def dropout(values: Tensor, rate: float, key: Tensor | None, call: int) -> Tensor:
    """Set a share of the values to 0 and scale the others so that the expectation stays.

    Args:
        values: Any shape, floating point.
        rate: Share dropped, in [0, 1), rounded to a multiple of 2**-16.
        key: The micro-batch's key as a scalar int64 tensor on the values' device; None drops nothing.
        call: Number of this call within the forward pass: different calls have independent masks.

    Returns:
        A tensor like `values`; `values` itself where nothing is dropped.
    """
    threshold = round(rate * _STEPS)
    if key is None or threshold == 0:
        return values
    dropped: Tensor = _Dropout.apply(values, random_bits(values.shape, key, call), threshold)
    return dropped


def dropout_add(values: Tensor, residual: Tensor, rate: float, key: Tensor | None, call: int) -> Tensor:
    """Return `residual + dropout(values)` without writing the dropped values to memory first.

    Args:
        values: Any shape, floating point.
        residual: The same shape.
        rate: As in `dropout`.
        key: As in `dropout`.
        call: As in `dropout`.
    """
    threshold = round(rate * _STEPS)
    if key is None or threshold == 0:
        return residual + values
    added: Tensor = _DropoutAdd.apply(values, residual, random_bits(values.shape, key, call), threshold)
    return added


def random_bits(shape: torch.Size, key: Tensor, call: int) -> Tensor:
    """Return 16 uniform random bits per position, as integers in [-2**15, 2**15).

    Args:
        shape: Shape of the result.
        key: Scalar int64 tensor; the result is on its device.
        call: Number of the call within the forward pass.
    """
    size = math.prod(shape)
    stream = _mix_(key + (call + 1) * _GOLDEN % (1 << 63))
    counter = torch.arange(-(-size // 4), dtype=torch.int64, device=key.device)
    words = _mix_(counter.mul_(_GOLDEN).add_(stream))
    return words.view(torch.int16)[:size].view(shape)


def _mix_(z: Tensor) -> Tensor:
    # Tensors have no unsigned shift. In the first two steps the copied sign only makes z and its complement
    # meet, which no two counters of one stream are; in the last it would hold the top bit at 0.
    z ^= z >> 30
    z *= _MIX_1
    z ^= z >> 27
    z *= _MIX_2
    z ^= (z >> 31) & ((1 << 33) - 1)
    return z


def _kept(bits: Tensor, threshold: int, dtype: torch.dtype) -> Tensor:
    # 1 where a value is kept, else 0, written as floating point at once: multiplying by it is several times
    # faster than by a boolean mask.
    kept = torch.empty(bits.shape, dtype=dtype, device=bits.device)
    return torch.ge(bits, threshold - _STEPS // 2, out=kept)


def _scale(threshold: int) -> float:
    return _STEPS / (_STEPS - threshold)


class _Dropout(torch.autograd.Function):
    """Dropout that keeps two bytes per value for the backward pass, whatever the precision."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bits: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(bits)
        ctx.threshold = threshold
        return _kept(bits, threshold, values.dtype).mul_(values).mul_(_scale(threshold))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        (gradient,) = gradients
        kept = _kept(bits, ctx.threshold, gradient.dtype)
        return kept.mul_(gradient).mul_(_scale(ctx.threshold)), None, None


class _DropoutAdd(torch.autograd.Function):
    """The same, added to a residual."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, residual: Tensor, bits: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(bits)
        ctx.threshold = threshold
        ctx.dtype = values.dtype
        kept = _kept(bits, threshold, residual.dtype)
        return torch.addcmul(residual, kept, values.to(residual.dtype), value=_scale(threshold))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        (gradient,) = gradients
        kept = _kept(bits, ctx.threshold, gradient.dtype)
        through = kept.mul_(gradient).mul_(_scale(ctx.threshold))
        return through.to(ctx.dtype), gradient, None, None
