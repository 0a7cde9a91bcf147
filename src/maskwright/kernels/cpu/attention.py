"""Attention in C for training on a CPU with AVX512, in fp32: each head of each sequence by itself.

Unlike matmuls over rows, it computes no padding and no pairs of tokens of two sequences, copies nothing into heads and
back, and neither writes nor saves scores.

T tokens, B sequences, N heads, D head size, H = N D.
"""

import ctypes
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.kernels.cpu.library import library, structure
from maskwright.kernels.dropout import DropoutMask, kernel_arguments
from maskwright.kernels.sequences import Sequences

_LANES = 16
_POINTERS = (
    *("query", "key", "value", "context", "softmax", "grad", "query_grad", "key_grad", "value_grad"),
    *("cu_seqlens", "slots", "random_rows", "random_columns", "workspace"),
)
_NUMBERS = ("query_stride", "key_stride", "value_stride", "sequences", "heads", "size", "row_length", "keep_threshold")
_Call = structure(
    **dict.fromkeys(_POINTERS, ctypes.c_void_p), **dict.fromkeys(_NUMBERS, ctypes.c_int64), scale=ctypes.c_float
)
"""`Call` of `attention.c`."""


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
    random_rows, random_columns, keep_threshold, scale = kernel_arguments(
        mask, rows.num_rows * num_heads * rows.length**2
    )
    inputs = (each if each.stride(1) == 1 else each.contiguous() for each in (query, key, value))
    call = {
        **{"cu_seqlens": sequences.cu_seqlens.int(), "slots": rows.slots, "row_length": rows.length},
        **{"random_rows": random_rows, "random_columns": random_columns, "keep_threshold": keep_threshold},
        **{"scale": scale, "heads": num_heads},
    }
    return cast(Tensor, _Attention.apply(*inputs, call))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """Saves two numbers of each query's softmax, shape (T, N, 2), for the backward pass."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, call: dict[str, Any]) -> Tensor:
        context, softmax = query.new_empty(query.shape), query.new_empty(len(query), call["heads"], 2)
        _compute(call, query=query, key=key, value=value, context=context, softmax=softmax)
        ctx.save_for_backward(query, key, value, softmax)
        ctx.call = call
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, softmax = ctx.saved_tensors
        gradients = [query.new_empty(query.shape) for _ in range(3)]
        names = ("query_grad", "key_grad", "value_grad")
        inputs = {"query": query, "key": key, "value": value, "softmax": softmax, "grad": grads[0].contiguous()}
        _compute(ctx.call, **inputs, **dict(zip(names, gradients, strict=True)))
        return *gradients, None


def _compute(call: dict[str, Any], **tensors: Tensor) -> None:
    query, threads = tensors["query"], torch.get_num_threads()
    size = query.shape[1] // call["heads"]
    code = library("attention")
    assert isinstance(code, ctypes.CDLL)
    needed = code.backward_workspace if "grad" in tensors else code.attention_workspace
    needed.argtypes, needed.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_int64
    tensors["workspace"] = query.new_empty(threads * needed(size, call["row_length"]))
    arguments = _Call(
        **{name: each.data_ptr() if isinstance(each, Tensor) else each for name, each in (call | tensors).items()},
        **{f"{name}_stride": tensors[name].stride(0) for name in ("query", "key", "value")},
        sequences=len(call["cu_seqlens"]) - 1,
        size=size,
    )
    code.attention(ctypes.byref(arguments), threads)
