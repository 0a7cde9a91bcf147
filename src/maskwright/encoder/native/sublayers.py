"""What stands between a layer's matrix products, by C code of our own (`sublayers.c`), in training on a processor.

Two functions of autograd, each the end of a sublayer: `feed_forward` from the layer's input on, `close_attention` from
what attention mixed on. Biases are added where the products' results are read anyway, and the slopes of biases and of
LayerNorm's weights are summed where slopes are written; dropout's masks are made again in the backward pass, from the
same table of words as everywhere (`dropout.RandomWords`), and so is the GELU's output where layers are wide.

Under autocast to bfloat16 the products are of bfloat16, all that is between them is computed in fp32.

T tokens, I inner width, H hidden size.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.encoder.dropout import DropoutKey, RandomWords
from maskwright.encoder.native.library import AVX512, Code, is_allowed

_LANES = 16
"""fp32 numbers in a register: widths are multiples."""
_HALF = torch.bfloat16
_Backward = TypeVar("_Backward", bound=Callable[..., Any])
ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1}
"""The activations of `feed_forward`, by their names for `core.tensors.activation`, and their numbers in C."""
_NARROWEST_MADE_AGAIN = 512
"""Hidden size from which the GELU's output is made again in the backward pass: 12 kB a token and layer at 768, where a
pass more is .5 % of a layer's time; at 256 it would be 1 % for memory that is not missed."""


class _Gelu(ctypes.Structure):
    """`Gelu` of `sublayers.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "slope", "bias", "result", "to_values", "to_bias", "room")),
        *((name, ctypes.c_int64) for name in ("rows", "width")),
        *((name, ctypes.c_int32) for name in ("kind", "half")),
    ]


class _Norm(ctypes.Structure):
    """`Norm` of `sublayers.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "bias", "residual", "weight", "shift", "sums", "result")),
        *((name, ctypes.c_void_p) for name in ("about", "slope", "to_residual", "to_values")),
        *((name, ctypes.c_void_p) for name in ("to_weight", "to_shift", "to_bias", "room")),
        *((name, ctypes.c_void_p) for name in ("word_rows", "word_columns")),
        *((name, ctypes.c_int64) for name in ("rows", "width", "least")),
        *((name, ctypes.c_float) for name in ("scale", "epsilon")),
        ("half", ctypes.c_int32),
    ]


class _Sums(ctypes.Structure):
    """`Sums` of `sublayers.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "sums", "room")),
        *((name, ctypes.c_int64) for name in ("rows", "width")),
        ("half", ctypes.c_int32),
    ]


def _declare(found: ctypes.CDLL) -> None:
    found.gelu_pass.argtypes = found.norm_pass.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    found.sum_columns.argtypes = (ctypes.c_void_p, ctypes.c_int)
    found.chunks_of.argtypes = (ctypes.c_int64,)
    found.gelu_pass.restype = found.norm_pass.restype = found.sum_columns.restype = None
    found.chunks_of.restype = ctypes.c_int64


CODE = Code("sublayers.c", AVX512, _declare, shares_threads=True)


@dataclass(frozen=True, slots=True)
class _Closing:
    """How a sublayer ends: the words of its dropout (None drops nothing), their rate, LayerNorm's epsilon."""

    words: RandomWords | None
    rate: float
    epsilon: float


def takes(values: Tensor, *layers: nn.Linear | nn.LayerNorm) -> bool:
    """Say whether a sublayer is computed by this code: in training on a processor that has it, in fp32 or bf16.

    Args:
        values: What comes in.
        layers: Whose weights are used.
    """
    if values.device.type != "cpu" or not torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled("cpu"):
        if torch.get_autocast_dtype("cpu") != _HALF or values.dtype not in (torch.float32, _HALF) or not _rounds():
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
        closing: _Closing,
        precision: torch.dtype,
    ) -> Tensor:
        hidden = hidden.contiguous()
        given, in_weight, out_weight = (each.to(precision) for each in (hidden, in_weight, out_weight))
        inner = given @ in_weight.t()
        active = torch.empty_like(inner)
        _gelu(_Gelu(values=inner.data_ptr(), bias=in_bias.data_ptr(), result=active.data_ptr(), kind=kind), inner)
        outer = active @ out_weight.t()
        result, sums, about = _norm(outer, hidden, out_bias, norm_weight, norm_bias, closing)
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
        to_hidden, to_outer, to_norm = _norm_back(gradients[0], sums, about, norm_weight, closing, given.dtype)
        slopes = to_outer @ out_weight
        makes_again = active is None
        if makes_again:
            active = torch.empty_like(inner)
        to_bias = torch.empty_like(in_bias)
        room = _room(len(inner), inner.shape[1])
        call = _Gelu(
            values=inner.data_ptr(),
            slope=slopes.data_ptr(),
            bias=in_bias.data_ptr(),
            result=active.data_ptr() if makes_again else None,
            to_values=slopes.data_ptr(),
            to_bias=to_bias.data_ptr(),
            room=room.data_ptr(),
            kind=kind,
        )
        assert slopes.dtype == inner.dtype
        _gelu(call, inner, backward=True)
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
        closing: _Closing,
        precision: torch.dtype,
    ) -> Tensor:
        ctx.mixed_dtype = mixed.dtype
        mixed, weight = mixed.to(precision), weight.to(precision)
        result, sums, about = _norm(mixed @ weight.t(), hidden.contiguous(), bias, norm_weight, norm_bias, closing)
        ctx.save_for_backward(mixed, weight, norm_weight, sums, about)
        ctx.closing = closing
        return result

    @staticmethod
    @once_differentiable
    @_as_saved
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mixed, weight, norm_weight, sums, about = ctx.saved_tensors
        to_hidden, to_outer, to_norm = _norm_back(gradients[0], sums, about, norm_weight, ctx.closing, mixed.dtype)
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
        to_bias = torch.empty(slope.shape[1], dtype=torch.float32)
        room = _room(*slope.shape)
        call = _Sums(slope.data_ptr(), to_bias.data_ptr(), room.data_ptr(), *slope.shape, slope.dtype == _HALF)
        _library().sum_columns(ctypes.byref(call), torch.get_num_threads())
        to_weights = torch.split((slope.t() @ given).float(), widths)
        return (slope @ weight).to(dtype), None, *to_weights, *torch.split(to_bias, widths)


def _closing(shape: torch.Size, norm: nn.LayerNorm, rate: float, key: DropoutKey | None, call: int) -> _Closing:
    words = RandomWords.of(shape, key, call) if key is not None and rate else None
    return _Closing(words, rate, norm.eps)


@functools.cache
def _rounds() -> bool:
    """Say whether the processor rounds to bfloat16 by an instruction."""
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


def _precision() -> torch.dtype:
    return _HALF if torch.is_autocast_enabled("cpu") else torch.float32


def _library() -> ctypes.CDLL:
    found = CODE.library()
    assert found is not None  # `takes` has seen to it.
    return found


def _room(rows: int, width: int) -> Tensor:
    return torch.empty(_library().chunks_of(rows) * width, dtype=torch.float32)


def _gelu(call: _Gelu, values: Tensor, *, backward: bool = False) -> None:
    # It points into tensors, which their owners keep until the call is over.
    assert values.is_contiguous()
    call.rows, call.width, call.half = *values.shape, values.dtype == _HALF
    _library().gelu_pass(ctypes.byref(call), backward, torch.get_num_threads())


def _norm(
    values: Tensor, residual: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, closing: _Closing
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm(residual + dropout(values + bias)), what is normed, and each row's mean and 1 / deviation.

    Args:
        values: Shape (T, H), fp32 or bf16; in fp32 what is normed takes its place.
        residual: Shape (T, H), fp32.
        bias: Shape (H,).
        weight: Shape (H,).
        shift: Shape (H,).
        closing: What is dropped, and epsilon.
    """
    result = torch.empty_like(residual)
    sums = values if values.dtype == torch.float32 else torch.empty_like(residual)
    about = torch.empty(len(values), 2, dtype=torch.float32)
    call = _call_of_norm(closing, sums, about, weight, values.dtype)
    call.values, call.bias, call.residual = values.data_ptr(), bias.data_ptr(), residual.data_ptr()
    call.shift, call.result = shift.data_ptr(), result.data_ptr()
    _library().norm_pass(ctypes.byref(call), False, torch.get_num_threads())
    return result, sums, about


def _norm_back(
    slope: Tensor, sums: Tensor, about: Tensor, weight: Tensor, closing: _Closing, precision: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes of the residual, of the values before the bias, and of LayerNorm's weights and the bias.

    Args:
        slope: Of the result. Shape (T, H), fp32.
        sums: From `_norm`.
        about: From `_norm`.
        weight: Shape (H,).
        closing: As `_norm` was given it.
        precision: Of the values.

    Returns:
        Shapes (T, H) in fp32, (T, H) in the given precision (perhaps the same memory), (3, H).
    """
    slope = slope.contiguous()
    to_residual = torch.empty_like(sums)
    same = precision == torch.float32 and closing.words is None
    to_values = to_residual if same else torch.empty_like(sums, dtype=precision)
    of_weights = torch.empty(3, sums.shape[1], dtype=torch.float32)
    room = _room(len(sums), 3 * sums.shape[1])
    call = _call_of_norm(closing, sums, about, weight, precision)
    call.slope, call.to_residual = slope.data_ptr(), to_residual.data_ptr()
    call.to_values = None if same else to_values.data_ptr()
    call.to_weight, call.room = of_weights.data_ptr(), room.data_ptr()
    _library().norm_pass(ctypes.byref(call), True, torch.get_num_threads())
    return to_residual, to_values, of_weights


def _call_of_norm(closing: _Closing, sums: Tensor, about: Tensor, weight: Tensor, precision: torch.dtype) -> _Norm:
    words = closing.words
    least, scale = (0, 1.0) if words is None else words.limits(closing.rate)
    return _Norm(
        weight=weight.data_ptr(),
        sums=sums.data_ptr(),
        about=about.data_ptr(),
        word_rows=None if words is None else words.rows.data_ptr(),
        word_columns=None if words is None else words.columns.data_ptr(),
        rows=len(sums),
        width=sums.shape[1],
        least=least,
        scale=scale,
        epsilon=closing.epsilon,
        half=precision == _HALF,
    )


def _add_product_(total: Tensor, left: Tensor, right: Tensor) -> None:
    # Onto fp32 sums; a product of bf16 is rounded first, as autocast rounds it.
    if left.dtype == total.dtype:
        torch.addmm(total, left, right, out=total)
    else:
        total.add_(left @ right)
