"""Attention over rows of equal length: batched products of matrices and a softmax, or PyTorch's fused function.

T tokens, R row length, N heads, D head size, H = N D.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.kernels.attention_plan import AttentionPlan, Heads
from maskwright.kernels.dropout import kept_of_signed, seeded_kernels, sign_dropped_


def laid_into_rows(values: Tensor, plan: AttentionPlan) -> Tensor:
    """Return values (T, H) of a stream as those of the slots of its rows, zeros at filler; itself if it is the rows."""
    slots = plan.row_slots
    if slots is None:
        return values
    laid = values.new_zeros(plan.num_rows * plan.row_length, values.shape[1])
    return laid.index_copy_(0, slots, values[: len(slots)])


def taken_from_rows(values: Tensor, plan: AttentionPlan, num_tokens: int) -> Tensor:
    """Undo `laid_into_rows`: values of all slots as those of a stream of T tokens, zeros behind the real ones."""
    slots = plan.row_slots
    if slots is None:
        return values
    taken, behind = values.index_select(0, slots), num_tokens - len(slots)
    return F.pad(taken, (0, 0, 0, behind)) if behind else taken


def _by_rows(values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # (T, H) -> (rows, N, R, D), a view where the stream is the rows.
    laid = laid_into_rows(values, plan)
    return laid.view(-1, plan.row_length, heads.number, values.shape[-1] // heads.number).transpose(1, 2)


def attend_by_products(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    """Attend by products of matrices, with keyed dropout; what is kept for the backward pass is chosen by hand."""
    tensors = [as_autocast(tensor) for tensor in (queries, keys, values)]
    saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    mixed: Tensor = _RowsAttention.apply(*tensors, plan, heads, saves)  # type: ignore[no-untyped-call]
    return mixed


def attend_fused(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    """Attend by PyTorch's fused function, which never writes the (R, R) scores to memory."""
    q, k, v = (_by_rows(tensor, plan, heads) for tensor in (queries, keys, values))
    mask = None if plan.mask is None else plan.mask.to(q.dtype)
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=heads.rate)
    return taken_from_rows(mixed.transpose(1, 2).reshape(-1, queries.shape[1]), plan, len(queries))


def as_autocast(tensor: Tensor) -> Tensor:
    """Do what autocast does to the inputs of a product: it looks at functions, not at what is inside of ours."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


class _RowsAttention(torch.autograd.Function):
    """Attention over rows that keeps for the backward pass the heads and one block of probabilities.

    Probabilities that are dropped bear a minus sign there, so neither their masks nor their dropped form are
    kept, and what the others are scaled by is a factor of the products. Products are in the precision of the
    inputs, the softmax inside is in fp32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads, saves: bool
    ) -> Tensor:
        q, k, v = (_to_heads(tensor, plan, heads) for tensor in (queries, keys, values))
        alpha = 1 / math.sqrt(q.shape[-1])
        scores = _product(q, k.transpose(1, 2), alpha)
        if plan.mask is not None:
            scores.view(-1, heads.number, *scores.shape[1:]).add_(plan.mask)
        probabilities = torch.softmax(scores, -1, out=scores)
        kept, scale = probabilities, 1.0
        if heads.rate and heads.key is not None:
            scale = sign_dropped_(probabilities, heads.rate, heads.key, heads.call)
            kept = kept_of_signed(probabilities)
        if saves:
            ctx.save_for_backward(q, k, v, probabilities)
            ctx.plan, ctx.heads, ctx.alpha, ctx.scale = plan, heads, alpha, scale
            ctx.num_tokens = len(queries)
        return _from_heads(_product(kept, v, scale), plan, heads, len(queries))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probabilities = ctx.saved_tensors
        slope = _to_heads(slope, ctx.plan, ctx.heads)
        shape = ctx.plan, ctx.heads, ctx.num_tokens
        drops, (of_queries, of_keys, of_values) = ctx.scale != 1, ctx.needs_input_grad[:3]
        queries_grad = keys_grad = values_grad = None
        if of_values:
            kept = kept_of_signed(probabilities) if drops else probabilities
            values_grad = _from_heads(_product(kept.transpose(1, 2), slope, ctx.scale), *shape)
            del kept
        if of_queries or of_keys:
            scores_grad = _product(slope, v.transpose(1, 2))
            if drops:
                torch.ops.aten.threshold_backward.grad_input(scores_grad, probabilities, 0, grad_input=scores_grad)
                probabilities = probabilities.abs()
            torch._softmax_backward_data(scores_grad, probabilities, -1, q.dtype, grad_input=scores_grad)
            alpha = ctx.alpha * ctx.scale
            if of_queries:
                queries_grad = _from_heads(_product(scores_grad, k, alpha), *shape)
            if of_keys:
                keys_grad = _from_heads(_product(scores_grad.transpose(1, 2), q, alpha), *shape)
        return queries_grad, keys_grad, values_grad, None, None, None


def _to_heads(tensor: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # (T, H) -> (rows N, R, D), a copy if N > 1.
    return _by_rows(tensor, plan, heads).reshape(-1, plan.row_length, tensor.shape[-1] // heads.number)


def _from_heads(tensor: Tensor, plan: AttentionPlan, heads: Heads, num_tokens: int) -> Tensor:
    # (rows N, R, D) -> (T, H), a copy if N > 1.
    together = tensor.view(-1, heads.number, *tensor.shape[1:]).transpose(1, 2)
    return taken_from_rows(together.reshape(-1, heads.number * tensor.shape[2]), plan, num_tokens)


def _product(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Each matrix of the left by that of the right, times a factor. Autocast leaves functions with `out` alone.
    product = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(product, left, right, beta=0, alpha=factor, out=product)
