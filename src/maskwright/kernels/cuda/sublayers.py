"""The two halves of a layer in training on a GPU in bfloat16: products by the vendor's library, the rest by kernels.

Two functions of autograd, `attention_sublayer` and `feed_forward`. Values lie in memory as bfloat16, the sums that
LayerNorm norms too, and are computed with in fp32; gradients of weights are fp32 products' results, never rounded.
Biases are added, and their slopes summed, where values pass by anyway; dropout's masks are those of every other way to
compute them, made again in the backward pass.

DEVIATION: PyTorch's autocast keeps what runs between sublayers in fp32. That is twice the memory to move, a tenth of a
step; what it does to a run's loss is measured in LOG.md.

T tokens, W of them read, I inner width, H hidden size, N heads.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.kernels.cuda import launches
from maskwright.kernels.cuda.launches import Closing
from maskwright.kernels.cuda.rounded import Joined
from maskwright.kernels.cuda.runs import Drawn, GpuRuns, attend, attend_backward
from maskwright.kernels.dropout import DropoutKey
from maskwright.kernels.setting import has_kernels

_HALF = torch.bfloat16
_LANES = 16
"""Widths are multiples: products of others are several times slower, and four random numbers share a word."""
_Compute = TypeVar("_Compute", bound=Callable[..., Any])


def computes_on(device: torch.device, dtype: torch.dtype) -> bool:
    """Say whether layers on a device are computed by this code: in bfloat16 on a GPU for which kernels can be made."""
    return dtype == _HALF and has_kernels(device)


def fits(*layers: nn.Module) -> bool:
    """Say whether layers have the widths and the precision that the kernels take."""
    return all(
        isinstance(layer, nn.Linear | nn.LayerNorm)
        and layer.weight.dtype == torch.float32
        and layer.bias is not None
        and layer.bias.is_contiguous()
        and not any(size % _LANES for size in layer.weight.shape)
        for layer in layers
    )


def attention_sublayer(
    hidden: Tensor,
    query: nn.Linear,
    key: nn.Linear,
    value: nn.Linear,
    output: nn.Linear,
    norm: nn.LayerNorm,
    runs: GpuRuns,
    *,
    num_heads: int,
    attention_rate: float,
    hidden_rate: float,
    dropout_key: DropoutKey | None,
    call: int,
    read: Tensor | None,
    rounded: Sequence[Joined],
) -> Tensor:
    """Return `norm(hidden + dropout(output(attention(hidden))))`.

    Args:
        hidden: Shape (T, H).
        query: H -> H, as the following.
        key: H -> H.
        value: H -> H.
        output: H -> H.
        norm: Of width H.
        runs: Who may look at whom.
        num_heads: N.
        attention_rate: Share of the attention probabilities dropped.
        hidden_rate: Share of the output's values dropped.
        dropout_key: The micro-batch's key; None drops nothing.
        call: Number of the first of two dropout calls.
        read: Shape (W,), int64: the tokens to return; None returns all.
        rounded: The weights of the first three layers, joined, and of the fourth.

    Returns:
        Shape (T, H), or (W, H), bfloat16.
    """
    rows = len(hidden) if read is None else len(read)
    drawn = Drawn(num_heads, attention_rate if dropout_key is not None else 0.0, dropout_key, call)
    closing = Closing.of(torch.Size((rows, hidden.shape[1])), norm, hidden_rate, dropout_key, call + 1)
    return cast(
        Tensor,
        _Attention.apply(  # type: ignore[no-untyped-call]
            hidden.to(_HALF),
            query.weight,
            query.bias,
            key.weight,
            key.bias,
            value.weight,
            value.bias,
            output.weight,
            output.bias,
            norm.weight,
            norm.bias,
            _Attended(runs, drawn, closing, read, rounded),
        ),
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
    rounded: Sequence[Joined],
) -> Tensor:
    """Return `norm(hidden + dropout(dense_out(activation(dense_in(hidden)))))`.

    Args:
        hidden: Shape (T, H).
        dense_in: H -> I.
        dense_out: I -> H.
        norm: Of width H.
        activation: A key of `launches.ACTIVATIONS`.
        rate: Share dropped.
        key: The micro-batch's key; None drops nothing.
        call: Number of the dropout call.
        rounded: The weights of both layers.

    Returns:
        Shape (T, H), bfloat16.
    """
    return cast(
        Tensor,
        _FeedForward.apply(  # type: ignore[no-untyped-call]
            hidden.to(_HALF),
            dense_in.weight,
            dense_in.bias,
            dense_out.weight,
            dense_out.bias,
            norm.weight,
            norm.bias,
            activation,
            Closing.of(hidden.shape, norm, rate, key, call),
            rounded,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Attended:
    """What an attention sublayer is told beside its tensors."""

    runs: GpuRuns
    drawn: Drawn
    closing: Closing
    read: Tensor | None
    rounded: Sequence[Joined]


def _as_it_is(compute: _Compute) -> _Compute:
    """Let a pass multiply in the precision of what it is given, whatever autocast says."""

    @functools.wraps(compute)
    def computed(*given: Any) -> Any:
        with torch.autocast("cuda", enabled=False):
            return compute(*given)

    return cast(_Compute, computed)


class _Attention(torch.autograd.Function):
    @staticmethod
    @_as_it_is
    def forward(ctx: Any, hidden: Tensor, *given: Any) -> Tensor:
        *_, out_bias, norm_weight, norm_bias, told = given
        projections, out_weight = told.rounded[0], told.rounded[1].weight
        hidden, weight = hidden.contiguous(), projections.weight
        qkv = F.linear(hidden, weight, projections.bias)
        mixed, kept = attend(qkv, told.runs, told.drawn)
        passed, residual = mixed, hidden
        if told.read is not None:
            passed, residual = mixed.index_select(0, told.read), hidden.index_select(0, told.read)
        result, sums, about = launches.norm_forward(
            passed @ out_weight.t(), residual, out_bias, norm_weight, norm_bias, told.closing
        )
        ctx.save_for_backward(
            hidden,
            weight,
            qkv,
            mixed,
            None if told.read is None else passed,
            out_weight,
            norm_weight,
            sums,
            about,
            *kept,
        )
        ctx.told = told
        return result

    @staticmethod
    @once_differentiable
    @_as_it_is
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, qkv, mixed, passed, out_weight, norm_weight, sums, about, *kept = ctx.saved_tensors
        told: _Attended = ctx.told
        to_residual, to_output, of_norm = launches.norm_backward(
            slopes[0].contiguous(), sums, about, norm_weight, told.closing
        )
        to_out_weight = _product_of_rows(to_output, mixed if passed is None else passed)
        to_mixed = to_output @ out_weight
        if told.read is not None:
            # Added, not copied: what fills up the tokens that are read is a token that may be read itself.
            to_mixed = to_mixed.new_zeros(mixed.shape).index_add_(0, told.read, to_mixed)
        to_qkv, to_bias = attend_backward(to_mixed, qkv, mixed, kept, told.runs, told.drawn)
        to_weight = _product_of_rows(to_qkv, hidden)
        if told.read is None:
            to_hidden = to_residual.addmm_(to_qkv, weight)
        else:
            to_hidden = (to_qkv @ weight).index_add_(0, told.read, to_residual)
        of_projections = [each for pair in zip(to_weight.chunk(3), to_bias.chunk(3), strict=True) for each in pair]
        return to_hidden, *of_projections, to_out_weight, of_norm[2], of_norm[0], of_norm[1], None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    @_as_it_is
    def forward(
        ctx: Any,
        hidden: Tensor,
        in_weight: Tensor,
        in_bias: Tensor,
        out_weight: Tensor,
        out_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        activation: str,
        closing: Closing,
        rounded: Sequence[Joined],
    ) -> Tensor:
        hidden = hidden.contiguous()
        in_weight, out_weight = rounded[0].weight, rounded[1].weight
        inner = hidden @ in_weight.t()
        active = launches.activation_forward(inner, in_bias, activation)
        result, sums, about = launches.norm_forward(
            active @ out_weight.t(), hidden, out_bias, norm_weight, norm_bias, closing
        )
        ctx.save_for_backward(hidden, in_weight, in_bias, out_weight, norm_weight, inner, active, sums, about)
        ctx.told = activation, closing
        return result

    @staticmethod
    @once_differentiable
    @_as_it_is
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        hidden, in_weight, in_bias, out_weight, norm_weight, inner, active, sums, about = ctx.saved_tensors
        activation, closing = ctx.told
        to_hidden, to_outer, of_norm = launches.norm_backward(slopes[0].contiguous(), sums, about, norm_weight, closing)
        to_out_weight = _product_of_rows(to_outer, active)
        to_inner = to_outer @ out_weight
        to_in_bias = launches.activation_backward_(to_inner, inner, in_bias, activation)
        to_in_weight = _product_of_rows(to_inner, hidden)
        to_hidden.addmm_(to_inner, in_weight)
        return to_hidden, to_in_weight, to_in_bias, to_out_weight, of_norm[2], of_norm[0], of_norm[1], None, None, None


def _product_of_rows(left: Tensor, right: Tensor) -> Tensor:
    # left.T @ right with an fp32 result, which no rounding to bfloat16 stands before.
    if left.is_cuda:
        return torch.mm(left.t(), right, out_dtype=torch.float32)
    return left.t().float() @ right.float()
