"""Dense layers in training on a CPU: few numbers of rows, one matmul for query, key and value, recomputed GELUs.

T tokens, I inner width, H hidden size.
"""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.core.activations import gelu_tanh_and_derivative
from maskwright.core.tensors import PackedBatch, activation
from maskwright.kernels.row_attention import as_autocast

_WIDEST_FUSED = 512
"""Widest layer whose three projections are one matmul. Measured on one core, forward and backward, time of one matmul /
time of three, in fp32 (bf16): width 128 0.93 (0.96), 256 0.93 (1.00), 512 0.99 (0.98), 768 1.01 (0.99)."""
_NARROWEST_RECOMPUTED = 512
"""Narrowest layer that recomputes a GELU in the backward pass, which saves a fifth of a layer's memory. It takes 0.4 to
0.6 % of a layer's time at width 768, 0.6 to 1.5 % at width 256."""
_MIN_ROWS, _PARTS = 16, 64
"""Rows come in multiples of 16, or of a 64th to a 128th of their number."""


def linear_qkv(hidden: Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear) -> tuple[Tensor, ...]:
    """Return query, key and value of each token. Shapes (T, H)."""
    layers, hidden = (query, key, value), as_autocast(hidden)  # Else autocast converts it three times.
    if hidden.device.type != "cpu" or not torch.is_grad_enabled() or hidden.shape[1] > _WIDEST_FUSED:
        return tuple(layer(hidden) for layer in layers)
    weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    return torch.split(F.linear(hidden, weight, bias), hidden.shape[1], 1)


def pad_rows(batch: PackedBatch) -> PackedBatch:
    """Append sequences of one token in training on a CPU, so that few numbers of tokens occur.

    oneDNN compiles each matmul again for a new number of rows: 6 to 8 % of a step of two layers of width 256, 4,096
    tokens.
    """
    missing, tokens = _missing_rows(batch.ids), batch.num_tokens
    if not missing:
        return batch
    return replace(
        batch,
        ids=F.pad(batch.ids, (0, missing)),
        position_ids=F.pad(batch.position_ids, (0, missing)),
        segment_ids=F.pad(batch.segment_ids, (0, missing)),
        # The shortest are packed last, so other sequences keep their places in rows and their dropout masks.
        cu_seqlens=torch.cat([batch.cu_seqlens, torch.arange(tokens + 1, tokens + missing + 1, dtype=torch.int32)]),
    )


def pad_positions(positions: Tensor) -> Tensor:
    """Repeat the last of some output positions where `pad_rows` would append tokens."""
    missing = _missing_rows(positions)
    return torch.cat([positions, positions[-1:].expand(missing)]) if missing else positions


def _missing_rows(rows: Tensor) -> int:
    if rows.device.type != "cpu" or not torch.is_grad_enabled():
        return 0
    return -len(rows) % max(_MIN_ROWS, 1 << max(0, (len(rows) // _PARTS).bit_length() - 1))


def activated_linear(name: str, values: Tensor, layer: nn.Linear) -> Tensor:
    """Return `layer(activation(name, values))`. Shape (T, I) to (T, H)."""
    is_recomputed = name != "relu" and values.device.type == "cpu" and layer.out_features >= _NARROWEST_RECOMPUTED
    if not is_recomputed or not torch.is_grad_enabled():
        return cast(Tensor, layer(activation(name, values)))
    return cast(Tensor, _GeluLinear.apply(values, layer.weight, layer.bias, name))  # type: ignore[no-untyped-call]


class _GeluLinear(torch.autograd.Function):
    """Saves the GELU's input only, not also its output (or, in its tanh form, its derivative)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, name: str) -> Tensor:
        ctx.save_for_backward(values, weight)
        ctx.name = name
        return F.linear(activation(name, values), weight.to(values.dtype), bias.to(values.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (values, weight), grad = ctx.saved_tensors, grads[0]
        values_grad = grad @ weight.to(grad.dtype)
        if ctx.name == "gelu":
            activated = F.gelu(values)
            torch.ops.aten.gelu_backward.grad_input(values_grad, values, grad_input=values_grad)
        else:
            activated, derivative = gelu_tanh_and_derivative(values)
            values_grad.mul_(derivative)
        return values_grad, (grad.t() @ activated).to(weight.dtype), grad.sum(0).to(weight.dtype), None
