"""Attention by our own C code (`attention.c`): each head of each run of tokens by itself, forward and backward.

Against products of matrices over rows: no filler and no pair of tokens of two sequences is computed, nothing is copied
into heads and back, and no square of scores is written to memory or kept for the backward pass.

T tokens, N heads, D head size, H = N D, W queries, S runs.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.core.native.library import AVX512, Code, has_bf16
from maskwright.core.own_code import is_allowed
from maskwright.model.dropout import DropoutKey, RandomWords

_LANES = 16
"""fp32 numbers in a register: a head's size is a multiple."""
_HALF = torch.bfloat16


class _Call(ctypes.Structure):
    """`Attention` of `attention.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("queries", "keys", "values", "mixed", "softmax", "slope")),
        *((name, ctypes.c_void_p) for name in ("to_queries", "to_keys", "to_values")),
        *((name, ctypes.c_void_p) for name in ("query_offsets", "offsets", "slots", "real", "rows")),
        *((name, ctypes.c_void_p) for name in ("columns", "room")),
        *((name, ctypes.c_int64) for name in ("query_stride", "key_stride", "value_stride", "runs", "longest")),
        *((name, ctypes.c_int64) for name in ("heads", "size", "row_length", "least")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("half", "multiplies")),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs of tokens that attend to each other.

    Attributes:
        offsets: Where they begin and end. Shape (S+1,), int64, from 0 to T.
        real: Whether they are tokens, not filler, whose results are zero. Shape (S,), bool.
        slots: Slot of each run's first token, counted through all rows: what is dropped is drawn by a token's place in
            its row. Shape (S,), int64; no real run goes beyond the end of its row.
        row_length: R, slots of a row.
        num_rows: How many rows there are.
        longest: Tokens of the longest.
    """

    offsets: Tensor
    real: Tensor
    slots: Tensor
    row_length: int
    num_rows: int
    longest: int

    def squares(self, num_heads: int) -> torch.Size:
        """Return the shape of the squares of pairs whose bits are drawn: (rows, N, R, R)."""
        return torch.Size((self.num_rows, num_heads, self.row_length, self.row_length))


def _declare(found: ctypes.CDLL) -> None:
    found.attention.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    found.numbers_needed.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
    found.attention.restype, found.numbers_needed.restype = None, ctypes.c_int64


# Called dozens of times a step between PyTorch's own functions, two teams of threads would wait for each other.
CODE = Code(Path(__file__).with_name("attention.c"), AVX512, _declare, shares_threads=True)


def takes(head_size: int, device_type: str, dtype: torch.dtype) -> bool:
    """Say whether the code is there and allowed, and computes heads of this size in this precision."""
    return is_allowed() and computes(head_size, device_type, dtype)


def computes(head_size: int, device_type: str, dtype: torch.dtype) -> bool:
    """Say whether the code is there and computes heads of this size in this precision."""
    fits = device_type == "cpu" and head_size % _LANES == 0 and dtype in (torch.float32, _HALF)
    return fits and CODE.library() is not None


def multiplies_pairs(head_size: int) -> bool:
    """Say whether the code multiplies pairs of bfloat16 for heads of this size, where both factors come in as such."""
    return has_bf16() and head_size % (2 * _LANES) == 0


def attend_runs(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    runs: Runs,
    *,
    num_heads: int,
    dropout_rate: float = 0.0,
    dropout_key: DropoutKey | None = None,
    dropout_call: int = 0,
) -> Tensor:
    """Mix each token's values over the tokens of its run (`attention.attend`).

    Args:
        queries: Shape (T, H), fp32 or bfloat16, numbers of one token side by side.
        keys: The same.
        values: The same.
        runs: Who may look at whom.
        num_heads: N.
        dropout_rate: Share of the attention probabilities dropped.
        dropout_key: Key of the micro-batch's masks; None drops nothing.
        dropout_call: Number of this call within the forward pass.

    Returns:
        Shape (T, H).
    """
    words = None
    if dropout_key is not None and dropout_rate:
        words = RandomWords.of(runs.squares(num_heads), dropout_key, dropout_call)
    tensors = [_side_by_side(tensor) for tensor in (queries, keys, values)]
    saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    mixed: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        *tensors, runs, num_heads, words, dropout_rate, saves
    )
    return mixed


def attend_read(queries: Tensor, keys: Tensor, values: Tensor, runs: Runs, read: Tensor, *, num_heads: int) -> Tensor:
    """Mix for some tokens only; no gradients, no dropout.

    Args:
        queries: Of these tokens. Shape (W, H).
        keys: Shape (T, H).
        values: Shape (T, H).
        runs: As in `attend_runs`.
        read: Which tokens these are, in any order. Shape (W,), int64.
        num_heads: N.

    Returns:
        Shape (W, H).
    """
    # Indexing refuses what is no slot, and counts from the end.
    read = torch.arange(len(keys))[read]
    places = None
    if len(read) > 1 and not bool((read[1:] >= read[:-1]).all()):
        read, places = read.sort()
        queries = queries[places]
    offsets = torch.searchsorted(read, runs.offsets)
    mixed = _forward(queries, keys, values, runs, offsets, num_heads, None)
    return mixed if places is None else torch.empty_like(mixed).index_copy_(0, places, mixed)


class _Attention(torch.autograd.Function):
    """Attention that keeps for the backward pass what came in, and of each query and head the softmax's two numbers."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        runs: Runs,
        num_heads: int,
        words: RandomWords | None,
        rate: float,
        saves: bool,
    ) -> Tensor:
        softmax = queries.new_empty(len(queries), num_heads, 2, dtype=torch.float32) if saves else None
        mixed = _forward(queries, keys, values, runs, runs.offsets, num_heads, softmax, words, rate)
        if saves:
            ctx.save_for_backward(queries, keys, values, softmax)
            ctx.given = runs, num_heads, words, rate
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, softmax = ctx.saved_tensors
        runs, num_heads, words, rate = ctx.given
        slope = slope.contiguous()
        slopes = [queries.new_empty(queries.shape) for _ in range(3)]
        call = _call(queries, keys, values, runs, runs.offsets, num_heads, words, rate)
        call.softmax, call.slope = softmax.data_ptr(), slope.data_ptr()
        call.to_queries, call.to_keys, call.to_values = (each.data_ptr() for each in slopes)
        _compute(call, backward=True)
        return *slopes, None, None, None, None, None


def _forward(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    runs: Runs,
    query_offsets: Tensor,
    num_heads: int,
    softmax: Tensor | None,
    words: RandomWords | None = None,
    rate: float = 0.0,
) -> Tensor:
    mixed = queries.new_empty(queries.shape)
    call = _call(queries, keys, values, runs, query_offsets, num_heads, words, rate)
    call.mixed, call.softmax = mixed.data_ptr(), None if softmax is None else softmax.data_ptr()
    _compute(call, backward=False)
    return mixed


def _call(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    runs: Runs,
    query_offsets: Tensor,
    num_heads: int,
    words: RandomWords | None,
    rate: float,
) -> _Call:
    # It points into the tensors, which their owners keep until the call is over.
    head_size = queries.shape[1] // num_heads
    kinds = {(tensor.device.type, tensor.dtype) for tensor in (queries, keys, values)}
    if len(kinds) > 1 or not computes(head_size, *kinds.pop()):
        raise ValueError(
            f"compiled attention was given heads of {head_size} in {queries.dtype}, {keys.dtype} and {values.dtype} on "
            f"{queries.device}: it takes multiples of {_LANES}, in fp32 or bf16 alike, on a processor with its code"
        )
    least, scale = (0, 1.0) if words is None else words.limits(rate)
    return _Call(
        queries=queries.data_ptr(),
        keys=keys.data_ptr(),
        values=values.data_ptr(),
        query_offsets=query_offsets.data_ptr(),
        offsets=runs.offsets.data_ptr(),
        slots=runs.slots.data_ptr(),
        real=runs.real.data_ptr(),
        rows=None if words is None else words.rows.data_ptr(),
        columns=None if words is None else words.columns.data_ptr(),
        query_stride=queries.stride(0),
        key_stride=keys.stride(0),
        value_stride=values.stride(0),
        runs=len(runs.real),
        longest=runs.longest,
        heads=num_heads,
        size=head_size,
        row_length=runs.row_length,
        least=least,
        scale=scale,
        half=queries.dtype == _HALF,
        multiplies=multiplies_pairs(head_size),
    )


def _compute(call: _Call, *, backward: bool) -> None:
    found, team = CODE.needed(), torch.get_num_threads()
    room = torch.empty(
        team * found.numbers_needed(call.size, call.longest, backward), dtype=torch.float32, device="cpu"
    )
    call.room = room.data_ptr()
    found.attention(ctypes.byref(call), backward, team)


def _side_by_side(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()
