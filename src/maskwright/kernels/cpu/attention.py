"""Attention in C for training on a CPU with AVX512, in fp32: each head of each sequence by itself.

Against matmuls over rows: no padding and no pair of tokens of two sequences is computed, nothing is copied into heads
and back, and no scores are written to memory or saved.

T tokens, B sequences, N heads, D head size, H = N D.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from maskwright.kernels.cpu.library import library
from maskwright.kernels.dropout import DropoutMask
from maskwright.kernels.row_attention import dropout_numbers
from maskwright.kernels.sequences import Sequences

_LANES = 16
_POINTERS = (
    *("query", "key", "value", "context", "softmax", "grad", "query_grad", "key_grad", "value_grad"),
    *("cu_seqlens", "slots", "rows", "columns", "workspace"),
)
_NUMBERS = (*("query_stride", "key_stride", "value_stride", "sequences", "heads", "size", "row_length", "least"),)


class _Call(ctypes.Structure):
    """`Call` of `attention.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("scale", ctypes.c_float),
    ]


def is_supported(query: Tensor, num_heads: int) -> bool:
    """Return whether `attention` computes heads of this size in this precision on this machine."""
    if query.device.type != "cpu" or query.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return query.shape[1] % (num_heads * _LANES) == 0 and isinstance(library("attention"), ctypes.CDLL)


def attention(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, num_heads: int, mask: DropoutMask | None
) -> Tensor:
    """See `ops.attention`. The same probabilities are dropped as in `row_attention`."""
    rows = sequences.rows
    numbers, least, scale = dropout_numbers(rows, num_heads, mask)
    inputs = (each if each.stride(1) == 1 else each.contiguous() for each in (query, key, value))
    cu_seqlens, shape = sequences.cu_seqlens.int(), (rows.length, num_heads)
    context: Tensor
    context, _ = _attention(*inputs, cu_seqlens, rows.slots, *numbers, *shape, least, scale)
    return context


@torch.library.custom_op("maskwright::sequence_attention", mutates_args=())
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    slots: Tensor | None,
    number_rows: Tensor | None,
    number_columns: Tensor | None,
    row_length: int,
    num_heads: int,
    least: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the context (T, H), and for the backward pass two numbers of each query's softmax (T, N, 2)."""
    context, softmax = query.new_empty(query.shape), query.new_empty(len(query), num_heads, 2)
    inputs = (query, key, value, cu_seqlens, slots, number_rows, number_columns, row_length, num_heads, least, scale)
    _compute(inputs, {"context": context, "softmax": softmax})
    return context, softmax


@_attention.register_fake
def _(query: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(len(query), arguments[7], 2)


@torch.library.custom_op("maskwright::sequence_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor,
    softmax: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    slots: Tensor | None,
    number_rows: Tensor | None,
    number_columns: Tensor | None,
    row_length: int,
    num_heads: int,
    least: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grads = query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)
    inputs = (query, key, value, cu_seqlens, slots, number_rows, number_columns, row_length, num_heads, least, scale)
    names = ("query_grad", "key_grad", "value_grad", "softmax", "grad")
    _compute(inputs, dict(zip(names, (*grads, softmax, grad.contiguous()), strict=True)))
    return grads


@_attention_backward.register_fake
def _(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return grad.new_empty(grad.shape), grad.new_empty(grad.shape), grad.new_empty(grad.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[:7])
    ctx.numbers = inputs[7:]


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*_attention_backward(grad, *ctx.saved_tensors, *ctx.numbers), *[None] * 8)


_attention.register_autograd(_backward, setup_context=_save)


def _compute(inputs: tuple[Any, ...], others: dict[str, Tensor]) -> None:
    names = ("query", "key", "value", "cu_seqlens", "slots", "rows", "columns", "row_length", "heads", "least", "scale")
    given = dict(zip(names, inputs, strict=True))
    query, threads = given["query"], torch.get_num_threads()
    size = query.shape[1] // given["heads"]
    code = library("attention")
    assert isinstance(code, ctypes.CDLL)
    needed = code.backward_workspace if "grad" in others else code.attention_workspace
    needed.argtypes, needed.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    others["workspace"] = query.new_empty(threads * needed(size, given["row_length"]))
    call = _Call(
        **{name: each.data_ptr() if isinstance(each, Tensor) else each for name, each in (given | others).items()},
        **{f"{name}_stride": given[name].stride(0) for name in ("query", "key", "value")},
        sequences=len(given["cu_seqlens"]) - 1,
        size=size,
    )
    code.attention(ctypes.byref(call), threads)
