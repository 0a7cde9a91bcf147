"""Attention over rows of equal length: batched matmuls and a softmax, or PyTorch's fused attention.

T tokens, R row length, N heads, D head size, H = N D hidden size.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from maskwright.kernels.dropout import DropoutMask, random_bits
from maskwright.kernels.sequences import Rows, Sequences

# Measured on two CPU cores, D = 64, forward and backward. Time of fused attention / time of matmuls: 1 at R = 128 with
# MKL (4 with oneDNN), 0.67 at R = 512, 0.5 at R = 1024. It has no keyed dropout.
_LONGEST_FOR_MATMULS = 256


def attention(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, num_heads: int, mask: DropoutMask | None
) -> Tensor:
    """See `ops.attention`."""
    rows = sequences.rows
    if mask is None and rows.length > _LONGEST_FOR_MATMULS:
        q, k, v = (
            _split_heads(each, rows.slots, rows.length, num_heads, rows.num_rows) for each in (query, key, value)
        )
        allowed = None if sequences.row_mask is None else sequences.row_mask.to(q.dtype)
        return _merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed), rows.slots)
    numbers, least, scale = dropout_numbers(rows, num_heads, mask)
    query, key, value = (as_autocast(tensor) for tensor in (query, key, value))
    shape = rows.num_rows, rows.length, num_heads
    context: Tensor
    context, _ = _rows_attention(query, key, value, rows.slots, sequences.row_mask, *shape, *numbers, least, scale)
    return context


def dropout_numbers(
    rows: Rows, num_heads: int, mask: DropoutMask | None
) -> tuple[tuple[Tensor | None, Tensor | None], int, float]:
    """Return the numbers of the rows' mask, the smallest bits that are kept, and the factor of what is kept."""
    if mask is None:
        return (None, None), 0, 1.0
    return mask.numbers(rows.num_rows * num_heads * rows.length**2), mask.least, mask.scale


def as_autocast(tensor: Tensor) -> Tensor:
    """Return a tensor in autocast's precision, for operators that autocast does not convert inputs of."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


@torch.library.custom_op("maskwright::rows_attention", mutates_args=())
def _rows_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    slots: Tensor | None,
    mask: Tensor | None,
    num_rows: int,
    row_length: int,
    num_heads: int,
    number_rows: Tensor | None,
    number_columns: Tensor | None,
    least: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the context (T, H) and the probabilities (rows N, R, R) for the backward pass.

    The sign bit of a probability marks it as dropped, so that no dropout mask is saved. Matmuls are in the precision of
    the inputs, the softmax computes in fp32 at least.
    """
    q, k, v = (
        _split_heads(tensor, slots, row_length, num_heads, num_rows).flatten(0, 1) for tensor in (query, key, value)
    )
    scores = _matmul(q, k.transpose(1, 2), 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores.view(-1, num_heads, *scores.shape[1:]).add_(mask)
    probabilities = torch.softmax(scores, -1, out=scores)
    if number_rows is not None and number_columns is not None:
        integers = _as_integers(probabilities)
        bits = random_bits(number_rows, number_columns, probabilities.shape)
        signs = torch.lt(bits, least, out=torch.empty_like(integers))
        integers |= signs.bitwise_left_shift_(8 * probabilities.itemsize - 1)
    context = _matmul(_kept(probabilities) if scale != 1 else probabilities, v, scale)
    return _merge_heads(context.view(num_rows, num_heads, row_length, v.shape[2]), slots), probabilities


@_rows_attention.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    num_rows, row_length, num_heads = others[4:7]
    return torch.empty_like(query), query.new_empty(num_rows * num_heads, row_length, row_length)


@register_flop_formula(torch.ops.maskwright.rows_attention)
def _(query: list[int], *shapes: Any, **_: Any) -> int:
    # For PyTorch's counter, which does not see inside of the operator. Shapes of key, value, slots, mask, then sizes.
    num_rows, row_length = shapes[4:6]
    return int(4 * num_rows * row_length**2 * query[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, slots, _, ctx.num_rows, ctx.row_length, ctx.num_heads, *_, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, slots, output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *inputs, slots, probabilities = ctx.saved_tensors
    q, k, v, g = (
        _split_heads(tensor, slots, ctx.row_length, ctx.num_heads, ctx.num_rows).flatten(0, 1)
        for tensor in (*inputs, grad)
    )
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
    grads = (
        _merge_heads(tensor.view(ctx.num_rows, ctx.num_heads, ctx.row_length, q.shape[2]), slots)
        for tensor in (query_grad, key_grad, value_grad)
    )
    return (*grads, *[None] * 9)


_rows_attention.register_autograd(_backward, setup_context=_save)


def _split_heads(tensor: Tensor, slots: Tensor | None, row_length: int, num_heads: int, num_rows: int) -> Tensor:
    # (T, H) -> (rows, N, R, D), with zeros at padding.
    if slots is not None:
        tensor = tensor.new_zeros(num_rows * row_length, tensor.shape[1]).index_copy(0, slots, tensor)
    return tensor.view(num_rows, row_length, num_heads, tensor.shape[1] // num_heads).transpose(1, 2)


def _merge_heads(tensor: Tensor, slots: Tensor | None) -> Tensor:
    # (rows, N, R, D) -> (T, H)
    merged = tensor.transpose(1, 2).flatten(2).flatten(0, 1)
    return merged if slots is None else merged.index_select(0, slots)


def _matmul(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Batched left @ right * factor.
    product = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(product, left, right, beta=0, alpha=factor, out=product)


def _as_integers(values: Tensor) -> Tensor:
    # The same memory; the sign is the highest bit of either.
    return values.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.itemsize])


def _kept(probabilities: Tensor) -> Tensor:
    # Zero where the sign marks a dropped probability: negative integers. NaNs with the sign bit are zeroed too; their
    # gradients stay NaN.
    return _as_integers(probabilities).clamp_min(0).view(probabilities.dtype)
