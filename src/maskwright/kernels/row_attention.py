"""Attention in PyTorch, over rows of equal length: batched matmuls and a softmax, or PyTorch's fused attention.

T tokens, R row length, N heads, D head size, H = N D hidden size.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.kernels.dropout import DropoutMask, dropout
from maskwright.kernels.sequences import Rows, Sequences

# Measured on two CPU cores, D = 64, forward and backward. Time of fused attention / time of matmuls: 1 at R = 128 with
# MKL (4 with oneDNN), 0.67 at R = 512, 0.5 at R = 1024. It has no keyed dropout.
_LONGEST_FOR_MATMULS = 256
_LONGEST_ROW_MASK = 1024
"""Longest rows of several sequences, or with padding, that have a mask, which takes 4 R^2 bytes for each row."""
_BLOCK = 64
"""Fewest queries in a block, where a window limits their keys."""
_BLOCKS_FROM = 2
"""Rows are computed by blocks from this many times the keys of a block: the scores are then half as many, or fewer."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    num_heads: int,
    mask: DropoutMask | None,
    window: int | None = None,
) -> Tensor:
    """See `ops.attention`."""
    rows = sequences.rows
    if window is not None and rows.length >= _BLOCKS_FROM * (max(window, _BLOCK) + 2 * window):
        return _by_blocks(query, key, value, sequences, num_heads, mask, window)
    if mask is None and window is None and rows.slots is not None and rows.length > _LONGEST_ROW_MASK:
        return _by_sequences(query, key, value, sequences, num_heads)
    row_mask = sequences.row_mask(window)
    if mask is None and rows.length > _LONGEST_FOR_MATMULS:
        q, k, v = (split_heads(each, rows, num_heads) for each in (query, key, value))
        allowed = None if row_mask is None else row_mask.to(q.dtype)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return merge_heads(context.flatten(0, 1), rows, num_heads)
    inputs = (as_autocast(tensor) for tensor in (query, key, value))
    return cast(Tensor, _RowsAttention.apply(*inputs, rows, row_mask, num_heads, mask))  # type: ignore[no-untyped-call]


def _by_sequences(query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, num_heads: int) -> Tensor:
    """Compute attention of each sequence alone. Memory is linear in the tokens."""
    lengths = sequences.cu_seqlens.diff().tolist()
    contexts = []
    for parts in zip(*(torch.split(each, lengths) for each in (query, key, value)), strict=True):
        q, k, v = (split_heads(each, Rows(1, len(each)), num_heads) for each in parts)
        context = F.scaled_dot_product_attention(q, k, v)
        contexts.append(context.transpose(1, 2).flatten(2).squeeze(0))
    return torch.cat(contexts)


def _by_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    num_heads: int,
    mask: DropoutMask | None,
    window: int,
) -> Tensor:
    """Compute attention within a window: blocks of queries, each with the keys in reach. Time and memory are linear."""
    rows, block = sequences.rows, max(window, _BLOCK)
    missing = -rows.length % block
    q, k, v = (split_heads(as_autocast(each), rows, num_heads) for each in (query, key, value))
    blocks, size = (rows.length + missing) // block, q.shape[-1]
    q = F.pad(q, (0, 0, 0, missing)).reshape(rows.num_rows, num_heads, blocks, block, size)
    q = q.transpose(1, 2).flatten(0, 1)
    reach = (0, 0, window, window + missing)
    k, v = (
        F.pad(each, reach).unfold(2, block + 2 * window, block).permute(0, 2, 1, 4, 3).flatten(0, 1) for each in (k, v)
    )
    allowed = sequences.block_mask(window, block)
    if mask is None:
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    else:
        scores = (q @ k.transpose(-1, -2)).float() if q.itemsize < torch.float32.itemsize else q @ k.transpose(-1, -2)
        scores = (scores / math.sqrt(q.shape[-1])).masked_fill(~allowed, -math.inf)
        context = dropout(scores.softmax(-1), mask).to(v.dtype) @ v
    # (rows blocks, N, block, D) -> (rows N, R, D)
    context = context.reshape(rows.num_rows, blocks, num_heads, block, size).transpose(1, 2)
    context = context.flatten(2, 3)[:, :, : rows.length]
    return merge_heads(context.flatten(0, 1).contiguous(), rows, num_heads)


def as_autocast(tensor: Tensor) -> Tensor:
    """Return a tensor in autocast's precision, for operators that autocast does not convert inputs of."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


class _RowsAttention(torch.autograd.Function):
    """Saves the probabilities (rows N, R, R) beside the inputs.

    The sign bit of a probability marks it as dropped, so that no dropout mask is saved. Matmuls are in the precision of
    the inputs, the softmax computes in fp32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rows: Rows,
        row_mask: Tensor | None,
        num_heads: int,
        mask: DropoutMask | None,
    ) -> Tensor:
        ctx.rows, ctx.num_heads, ctx.scale = rows, num_heads, 1.0 if mask is None else mask.scale
        q, k, v = (split_heads(each, ctx.rows, num_heads).flatten(0, 1) for each in (query, key, value))
        scores = _matmul(q, k.transpose(1, 2), 1 / math.sqrt(q.shape[-1]))
        if row_mask is not None:
            scores.view(-1, num_heads, *scores.shape[1:]).add_(row_mask)
        probabilities = torch.softmax(scores, -1, out=scores)
        if mask is not None:
            integers = _as_integers(probabilities)
            signs = torch.lt(mask.random_bits(probabilities.shape), mask.keep_threshold, out=torch.empty_like(integers))
            integers |= signs.bitwise_left_shift_(8 * probabilities.itemsize - 1)
        ctx.save_for_backward(query, key, value, probabilities)
        context = _matmul(_kept(probabilities) if mask is not None else probabilities, v, ctx.scale)
        return merge_heads(context, ctx.rows, num_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, probabilities = ctx.saved_tensors
        q, k, v, g = (split_heads(each, ctx.rows, ctx.num_heads).flatten(0, 1) for each in (*inputs, grads[0]))
        kept = _kept(probabilities) if ctx.scale != 1 else probabilities
        value_grad = _matmul(kept.transpose(1, 2), g, ctx.scale)
        scores_grad = _matmul(g, v.transpose(1, 2))
        if ctx.scale != 1:
            torch.ops.aten.threshold_backward.grad_input(scores_grad, probabilities, 0, grad_input=scores_grad)
            probabilities = probabilities.abs()
        torch._softmax_backward_data(scores_grad, probabilities, -1, q.dtype, grad_input=scores_grad)
        alpha = ctx.scale / math.sqrt(q.shape[-1])
        query_grad = _matmul(scores_grad, k, alpha)
        key_grad = _matmul(scores_grad.transpose(1, 2), q, alpha)
        gradients = (merge_heads(each, ctx.rows, ctx.num_heads) for each in (query_grad, key_grad, value_grad))
        return *gradients, None, None, None, None


def split_heads(tensor: Tensor, rows: Rows, num_heads: int) -> Tensor:
    """Arrange tokens (T, H) in rows, (rows, N, R, D), with zeros at padding."""
    if rows.slots is not None:
        tensor = tensor.new_zeros(rows.num_rows * rows.length, tensor.shape[1]).index_copy(0, rows.slots, tensor)
    return tensor.view(rows.num_rows, rows.length, num_heads, tensor.shape[1] // num_heads).transpose(1, 2)


def merge_heads(tensor: Tensor, rows: Rows, num_heads: int) -> Tensor:
    """Undo `split_heads`: (rows N, R, D) to (T, H)."""
    merged = tensor.view(rows.num_rows, num_heads, rows.length, tensor.shape[-1]).transpose(1, 2)
    merged = merged.flatten(2).flatten(0, 1)
    return merged if rows.slots is None else merged.index_select(0, rows.slots)


def _matmul(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Batched left @ right * factor.
    result = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(result, left, right, beta=0, alpha=factor, out=result)


def _as_integers(values: Tensor) -> Tensor:
    # The same memory; the sign is the highest bit of either.
    return values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.itemsize])


def _kept(probabilities: Tensor) -> Tensor:
    # Zero where the sign marks a dropped probability: negative integers. NaNs with the sign bit are zeroed too; their
    # gradients stay NaN.
    return _as_integers(probabilities).clamp_min(0).view(probabilities.dtype)
