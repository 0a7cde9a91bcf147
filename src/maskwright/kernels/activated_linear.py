"""A dense layer behind a GELU that keeps only what goes in: the backward pass makes the activation again.

Kept apart, the two remember the GELU's input and its output, each four times as wide as a hidden state: half of it is
spared, 12 kB a token and layer at the base size. It costs a pass of the activation: of a whole layer's time, forward
and backward (one core, fp32), .6 % (erf) and 1.5 % (tanh) at width 256, where the memory is not missed; at width 768,
by the time that the pass alone takes, .4 % and .6 %.

T tokens, I inner width, H hidden size.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.core.activations import gelu_tanh_and_derivative
from maskwright.core.tensors import activation

_NARROWEST = 512


def keeps_less(activation_name: str, values: Tensor, layer: nn.Linear) -> bool:
    """Say whether `activated_linear` can and should be used.

    Args:
        activation_name: For `core.tensors.activation`. ReLU's output is its memory already.
        values: Shape (T, I), what the activation is applied to.
        layer: What follows. Autocast would change its precision: there, and on other devices, the plain modules serve.
    """
    return (
        activation_name in ("gelu", "gelu_tanh")
        and layer.out_features >= _NARROWEST
        and values.device.type == "cpu"
        and values.dtype == layer.weight.dtype
        and not torch.is_autocast_enabled("cpu")
        and torch.is_grad_enabled()
    )


def activated_linear(activation_name: str, values: Tensor, layer: nn.Linear) -> Tensor:
    """Return `layer(activation(activation_name, values))`.

    Args:
        activation_name: "gelu" or "gelu_tanh".
        values: Shape (T, I).
        layer: I -> H.

    Returns:
        Shape (T, H).
    """
    return cast(
        Tensor,
        _ActivatedLinear.apply(values, layer.weight, layer.bias, activation_name),  # type: ignore[no-untyped-call]
    )


class _ActivatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, name: str) -> Tensor:
        ctx.save_for_backward(values, weight)
        ctx.name = name
        return F.linear(activation(name, values.detach()), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        values, weight = ctx.saved_tensors
        (gradient,) = gradients
        of_values = gradient @ weight
        if ctx.name == "gelu":
            activated = F.gelu(values)
            torch.ops.aten.gelu_backward.grad_input(of_values, values, grad_input=of_values)
        else:
            activated, slope = gelu_tanh_and_derivative(values)
            of_values.mul_(slope)
        return of_values, gradient.t() @ activated, gradient.sum(0), None
