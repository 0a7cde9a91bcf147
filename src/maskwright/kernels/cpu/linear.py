"""Dense layers in PyTorch, arranged for training on a CPU: few distinct sizes, fused projections, recomputed GELUs.

The setting `kernels` does not affect them. T tokens, W output positions, H hidden size, F inner width.
"""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.core.tensors import PackedBatch
from maskwright.kernels.activations import activation, gelu_tanh_and_derivative
from maskwright.kernels.cpu.int8_linear import Int8Linear, QuantizedTokens
from maskwright.kernels.row_attention import as_autocast

_WIDEST_FUSED = 512
"""Widest layer whose three projections are one matmul. Measured on one core, forward and backward, time of one matmul /
time of three, in fp32 (bf16): width 128 0.93 (0.96), 256 0.93 (1.00), 512 0.99 (0.98), 768 1.01 (0.99)."""
_NARROWEST_RECOMPUTED = 512
"""Narrowest layer that recomputes a GELU in the backward pass, which saves a fifth of a layer's memory. It takes 0.4 to
0.6 % of a layer's time at width 768, 0.6 to 1.5 % at width 256."""
_MIN_STEP, _PARTS = 16, 64
"""Sizes are multiples of 16, or of a 64th to a 128th of themselves."""


def pad_to_few_sizes(batch: PackedBatch, output_positions: Tensor | None) -> tuple[PackedBatch, Tensor | None]:
    """In training on a CPU, append sequences of one token and repeat the last output position, so that few sizes occur.

    oneDNN compiles each matmul again for a new number of tokens: 6 to 8 % of a step of two layers of width 256, 4,096
    tokens. Do not use results at the appended positions. Nothing changes without gradients and on other devices.
    """
    if output_positions is not None and (missing := _missing(output_positions)):
        output_positions = torch.cat([output_positions, output_positions[-1:].expand(missing)])
    missing, tokens = _missing(batch.ids), batch.num_tokens
    if not missing:
        return batch, output_positions
    batch = replace(
        batch,
        ids=F.pad(batch.ids, (0, missing)),
        position_ids=F.pad(batch.position_ids, (0, missing)),
        segment_ids=F.pad(batch.segment_ids, (0, missing)),
        # The shortest are packed last, so other sequences keep their positions in rows and their dropout masks.
        cu_seqlens=torch.cat([batch.cu_seqlens, torch.arange(tokens + 1, tokens + missing + 1, dtype=torch.int32)]),
    )
    return batch, output_positions


def _missing(values: Tensor) -> int:
    if values.device.type != "cpu" or not torch.is_grad_enabled():
        return 0
    return -len(values) % max(_MIN_STEP, 1 << max(0, (len(values) // _PARTS).bit_length() - 1))


def linear_qkv(
    hidden: Tensor, query: nn.Linear | Int8Linear, key: nn.Linear | Int8Linear, value: nn.Linear | Int8Linear
) -> tuple[Tensor, ...]:
    """Return `query(hidden), key(hidden), value(hidden)`, all three of one type. Shapes (T, H)."""
    if isinstance(query, Int8Linear) and isinstance(key, Int8Linear) and isinstance(value, Int8Linear):
        quantized = QuantizedTokens.of(hidden)
        return tuple(layer.multiply(quantized) for layer in (query, key, value))
    layers, hidden = (query, key, value), as_autocast(hidden)  # Else autocast converts it three times.
    if hidden.device.type != "cpu" or not torch.is_grad_enabled() or hidden.shape[1] > _WIDEST_FUSED:
        return tuple(layer(hidden) for layer in layers)
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if query.bias is None else torch.cat([cast(Tensor, layer.bias) for layer in layers])
    return torch.split(F.linear(hidden, weight, bias), hidden.shape[1], 1)


def feed_forward(hidden: Tensor, dense_in: nn.Linear, name: str, dense_out: nn.Linear) -> Tensor:
    """Return `dense_out(activation(dense_in(hidden)))` (Vaswani et al. 2017, section 3.3). Shape (T, H) to (T, H)."""
    inner: Tensor = dense_in(hidden)
    is_recomputed = (
        name != "relu"
        and dense_out.bias is not None
        and inner.device.type == "cpu"
        and dense_out.out_features >= _NARROWEST_RECOMPUTED
    )
    if not is_recomputed or not torch.is_grad_enabled():
        return cast(Tensor, dense_out(activation(name, inner)))
    return cast(Tensor, _GeluLinear.apply(inner, dense_out.weight, dense_out.bias, name))  # type: ignore[no-untyped-call]


def gated_feed_forward(hidden: Tensor, dense_in: nn.Linear, name: str, dense_out: nn.Linear) -> Tensor:
    """Return `dense_out(activation(a) * b)` with `a, b = dense_in(hidden)` (Shazeer 2020). Shape (T, H) to (T, H)."""
    values, gate = dense_in(hidden).chunk(2, -1)
    return cast(Tensor, dense_out(activation(name, values) * gate))


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
