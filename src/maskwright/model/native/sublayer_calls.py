"""Calls of `sublayers.c`: what it is given, and its three passes over tensors.

T tokens, H hidden size.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from maskwright.core.native.library import AVX512, Code
from maskwright.model.dropout import RandomWords
from maskwright.model.native.passes import Dropout, dropout_of

_HALF = torch.bfloat16


class Gelu(ctypes.Structure):
    """`Gelu` of `sublayers.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "slope", "bias", "result", "to_values", "to_bias", "room")),
        *((name, ctypes.c_int64) for name in ("rows", "width")),
        *((name, ctypes.c_int32) for name in ("kind", "half")),
    ]


class Norm(ctypes.Structure):
    """`Norm` of `sublayers.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "bias", "residual", "weight", "shift", "sums", "result")),
        *((name, ctypes.c_void_p) for name in ("about", "slope", "to_residual", "to_values")),
        *((name, ctypes.c_void_p) for name in ("to_weight", "to_shift", "to_bias", "room")),
        ("dropout", Dropout),
        *((name, ctypes.c_int64) for name in ("rows", "width")),
        ("epsilon", ctypes.c_float),
        ("half", ctypes.c_int32),
    ]


class Sums(ctypes.Structure):
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


CODE = Code(Path(__file__).with_name("sublayers.c"), AVX512, _declare, shares_threads=True)


@dataclass(frozen=True, slots=True)
class Closing:
    """How a sublayer ends: the words of its dropout (None drops nothing), their rate, LayerNorm's epsilon."""

    words: RandomWords | None
    rate: float
    epsilon: float


def room(rows: int, width: int) -> Tensor:
    return torch.empty(CODE.needed().chunks_of(rows) * width, dtype=torch.float32)


def gelu_pass(call: Gelu, values: Tensor, *, backward: bool = False) -> None:
    # It points into tensors, which their owners keep until the call is over.
    assert values.is_contiguous()
    call.rows, call.width, call.half = *values.shape, values.dtype == _HALF
    CODE.needed().gelu_pass(ctypes.byref(call), backward, torch.get_num_threads())


def norm_forward(
    values: Tensor, residual: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, closing: Closing
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
    CODE.needed().norm_pass(ctypes.byref(call), False, torch.get_num_threads())
    return result, sums, about


def norm_back(
    slope: Tensor, sums: Tensor, about: Tensor, weight: Tensor, closing: Closing, precision: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes of the residual, of the values before the bias, and of LayerNorm's weights and the bias.

    Args:
        slope: Of the result. Shape (T, H), fp32.
        sums: From `norm_forward`.
        about: From `norm_forward`.
        weight: Shape (H,).
        closing: As `norm_forward` was given it.
        precision: Of the values.

    Returns:
        Shapes (T, H) in fp32, (T, H) in the given precision (perhaps the same memory), (3, H).
    """
    slope = slope.contiguous()
    to_residual = torch.empty_like(sums)
    same = precision == torch.float32 and closing.words is None
    to_values = to_residual if same else torch.empty_like(sums, dtype=precision)
    of_weights = torch.empty(3, sums.shape[1], dtype=torch.float32)
    space = room(len(sums), 3 * sums.shape[1])
    call = _call_of_norm(closing, sums, about, weight, precision)
    call.slope, call.to_residual = slope.data_ptr(), to_residual.data_ptr()
    call.to_values = None if same else to_values.data_ptr()
    call.to_weight, call.room = of_weights.data_ptr(), space.data_ptr()
    CODE.needed().norm_pass(ctypes.byref(call), True, torch.get_num_threads())
    return to_residual, to_values, of_weights


def _call_of_norm(closing: Closing, sums: Tensor, about: Tensor, weight: Tensor, precision: torch.dtype) -> Norm:
    return Norm(
        weight=weight.data_ptr(),
        sums=sums.data_ptr(),
        about=about.data_ptr(),
        dropout=dropout_of(closing.words, closing.rate),
        rows=len(sums),
        width=sums.shape[1],
        epsilon=closing.epsilon,
        half=precision == _HALF,
    )


def sums_of_columns(values: Tensor) -> Tensor:
    """Return the sums of each column in fp32. Shape (T, O), contiguous, to (O,)."""
    sums, space = torch.empty(values.shape[1], dtype=torch.float32), room(*values.shape)
    call = Sums(values.data_ptr(), sums.data_ptr(), space.data_ptr(), *values.shape, values.dtype == _HALF)
    CODE.needed().sum_columns(ctypes.byref(call), torch.get_num_threads())
    return sums
