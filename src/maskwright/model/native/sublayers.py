"""What stands between a layer's matrix products, by C code of our own (`sublayers.c`), in training on a processor.

Two functions of autograd, each the end of a sublayer: `feed_forward` from the layer's input on, `close_attention` from
what attention mixed on. Biases are added where the products' results are read anyway, and the slopes of biases and of
LayerNorm's weights are summed where slopes are written; dropout's masks are made again in the backward pass, from the
same table of words as everywhere (`dropout.RandomWords`), and so is the GELU's output where layers are wide.

Under autocast to bfloat16 the products are of bfloat16, all that is between them is computed in fp32.

T tokens, I inner width, H hidden size.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.core.native.library import has_bf16
from maskwright.core.own_code import is_allowed
from maskwright.model.dropout import DropoutKey, RandomWords
from maskwright.model.native.sublayer_calls import (
    CODE,
    Closing,
    Gelu,
    gelu_pass,
    norm_back,
    norm_forward,
    room,
    sums_of_columns,
)

_LANES = 16
"""fp32 numbers in a register: widths are multiples."""
_HALF = torch.bfloat16
_Backward = TypeVar("_Backward", bound=Callable[..., Any])
ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1}
"""The activations of `feed_forward`, by their names for `core.tensors.activation`, and their numbers in C."""
_NARROWEST_MADE_AGAIN = 512
"""Hidden size from which the GELU's output is made again in the backward pass: 12 kB a token and layer at 768, where a
pass more is .5 % of a layer's time; at 256 it would be 1 % for memory that is not missed."""


def takes(values: Tensor, *layers: nn.Linear | nn.LayerNorm) -> bool:
    """Say whether a sublayer is computed by this code: in training on a processor that has it, in fp32 or bf16.

    Args:
        values: What comes in.
        layers: Whose weights are used.
    """
    if values.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled("cpu"):
        if torch.get_autocast_dtype("cpu") != _HALF or values.dtype not in (torch.float32, _HALF) or not has_bf16():
            return False
    elif values.dtype != torch.float32:
        return False
    return len(values) > 0 and all(_fits(layer) for layer in layers) and is_allowed() and CODE.library() is not None


def _fits(layer: nn.Linear | nn.LayerNorm) -> bool:
    return (
        layer.weight.dtype == torch.float32
        and layer.bias is not None
        and layer.bias.is_contiguous()
        and (layer.weight.ndim > 1 or layer.weight.is_contiguous())
        and not any(size % _LANES for size in layer.weight.shape)
    )


def feed_forward(
    hidden: Tensor,
    dense_in: nn.Linear,
    dense_out: nn.Linear,
    norm: nn.LayerNorm,
    *,
    activation: str,
    rate: float,
    key: DropoutKey | None,
    call: int,
) -> Tensor:
    """Return `norm(hidden + dropout(dense_out(activation(dense_in(hidden)))))`.

    Args:
        hidden: Shape (T, H).
        dense_in: H -> I.
        dense_out: I -> H.
        norm: Of width H.
        activation: "gelu" or "gelu_tanh".
        rate: Share dropped.
        key: The micro-batch's key; None drops nothing.
        call: Number of the dropout call.

    Returns:
        Shape (T, H), fp32.
    """
    return cast(
        Tensor,
        _FeedForward.apply(  # type: ignore[no-untyped-call]
            hidden.float(),
            dense_in.weight,
            dense_in.bias,
            dense_out.weight,
            dense_out.bias,
            norm.weight,
            norm.bias,
            ACTIVATIONS[activation],
            _closing(hidden.shape, norm, rate, key, call),
            _precision(),
        ),
    )


def close_attention(
    mixed: Tensor,
    hidden: Tensor,
    output: nn.Linear,
    norm: nn.LayerNorm,
    *,
    rate: float,
    key: DropoutKey | None,
    call: int,
) -> Tensor:
    """Return `norm(hidden + dropout(output(mixed)))`.

    Args:
        mixed: Shape (T, H).
        hidden: Shape (T, H).
        output: H -> H.
        norm: Of width H.
        rate: Share dropped.
        key: The micro-batch's key; None drops nothing.
        call: Number of the dropout call.

    Returns:
        Shape (T, H), fp32.
    """
    return cast(
        Tensor,
        _CloseAttention.apply(  # type: ignore[no-untyped-call]
            mixed,
            hidden.float(),
            output.weight,
            output.bias,
            norm.weight,
            norm.bias,
            _closing(hidden.shape, norm, rate, key, call),
            _precision(),
        ),
    )


def joined_projections(hidden: Tensor, *layers: nn.Linear) -> Tensor:
    """Return what several layers make of one input, side by side, by one product.

    Args:
        hidden: Shape (T, H).
        layers: Each H -> H.

    Returns:
        Shape (T, H times their number), in the precision of products.
    """
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    return cast(Tensor, _Joined.apply(hidden, _precision(), *weights, *biases))  # type: ignore[no-untyped-call]


def _as_saved(backward: _Backward) -> _Backward:
    """Let a backward pass multiply in the precision of what was saved, whatever autocast says when it runs."""

    @functools.wraps(backward)
    def computed(ctx: Any, *gradients: Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return backward(ctx, *gradients)

    return cast(_Backward, computed)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        in_weight: Tensor,
        in_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        kind: int,
        closing: Closing,
        precision: torch.dtype,
    ) -> Tensor:
        hidden = hidden.contiguous()
        given, in_weight, out_weight = (each.to(precision) for each in (hidden, in_weight, out_weight))
        inner = given @ in_weight.t()
        active = torch.empty_like(inner)
        gelu_pass(Gelu(values=inner.data_ptr(), bias=in_bias.data_ptr(), result=active.data_ptr(), kind=kind), inner)
        outer = active @ out_weight.t()
        result, sums, about = norm_forward(outer, hidden, out_bias, norm_weight, norm_bias, closing)
        makes_again = hidden.shape[1] >= _NARROWEST_MADE_AGAIN
        kept = None if makes_again else active
        ctx.save_for_backward(given, in_weight, in_bias, out_weight, norm_weight, inner, kept, sums, about)
        ctx.given = kind, closing
        return result

    @staticmethod
    @once_differentiable
    @_as_saved
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        given, in_weight, in_bias, out_weight, norm_weight, inner, active, sums, about = ctx.saved_tensors
        kind, closing = ctx.given
        to_hidden, to_outer, to_norm = norm_back(gradients[0], sums, about, norm_weight, closing, given.dtype)
        slopes = to_outer @ out_weight
        makes_again = active is None
        if makes_again:
            active = torch.empty_like(inner)
        to_bias = torch.empty_like(in_bias)
        space = room(len(inner), inner.shape[1])
        call = Gelu(
            values=inner.data_ptr(),
            slope=slopes.data_ptr(),
            bias=in_bias.data_ptr(),
            result=active.data_ptr() if makes_again else None,
            to_values=slopes.data_ptr(),
            to_bias=to_bias.data_ptr(),
            room=space.data_ptr(),
            kind=kind,
        )
        assert slopes.dtype == inner.dtype
        gelu_pass(call, inner, backward=True)
        # In the order of the arguments of `forward`: frozen weights are spared their products.
        of_in_weight, of_out_weight = ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        to_out_weight = (to_outer.t() @ active).float() if of_out_weight else None
        to_in_weight = (slopes.t() @ given).float() if of_in_weight else None
        _add_product_(to_hidden, slopes, in_weight)
        return to_hidden, to_in_weight, to_bias, to_out_weight, to_norm[2], to_norm[0], to_norm[1], None, None, None


class _CloseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mixed: Tensor,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        closing: Closing,
        precision: torch.dtype,
    ) -> Tensor:
        ctx.mixed_dtype = mixed.dtype
        mixed, weight = mixed.to(precision), weight.to(precision)
        result, sums, about = norm_forward(
            mixed @ weight.t(), hidden.contiguous(), bias, norm_weight, norm_bias, closing
        )
        ctx.save_for_backward(mixed, weight, norm_weight, sums, about)
        ctx.closing = closing
        return result

    @staticmethod
    @once_differentiable
    @_as_saved
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mixed, weight, norm_weight, sums, about = ctx.saved_tensors
        to_hidden, to_outer, to_norm = norm_back(gradients[0], sums, about, norm_weight, ctx.closing, mixed.dtype)
        to_mixed = (to_outer @ weight).to(ctx.mixed_dtype)
        to_weight = (to_outer.t() @ mixed).float() if ctx.needs_input_grad[2] else None
        return to_mixed, to_hidden, to_weight, to_norm[2], to_norm[0], to_norm[1], None, None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, precision: torch.dtype, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        weight, bias = (torch.cat([each.to(precision) for each in tensors]) for tensors in (weights, biases))
        given = hidden.to(precision)
        ctx.save_for_backward(given, weight)
        ctx.about = hidden.dtype, [len(each) for each in weights]
        return torch.nn.functional.linear(given, weight, bias)

    @staticmethod
    @once_differentiable
    @_as_saved
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        given, weight = ctx.saved_tensors
        dtype, widths = ctx.about
        slope = gradients[0].contiguous()
        to_bias = sums_of_columns(slope)
        to_weights = torch.split((slope.t() @ given).float(), widths)
        return (slope @ weight).to(dtype), None, *to_weights, *torch.split(to_bias, widths)


def _closing(shape: torch.Size, norm: nn.LayerNorm, rate: float, key: DropoutKey | None, call: int) -> Closing:
    words = RandomWords.of(shape, key, call) if key is not None and rate else None
    return Closing(words, rate, norm.eps)


def _precision() -> torch.dtype:
    return _HALF if torch.is_autocast_enabled("cpu") else torch.float32


def _add_product_(total: Tensor, left: Tensor, right: Tensor) -> None:
    # Onto fp32 sums; a product of bf16 is rounded first, as autocast rounds it.
    if left.dtype == total.dtype:
        torch.addmm(total, left, right, out=total)
    else:
        total.add_(left @ right)
