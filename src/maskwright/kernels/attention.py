"""Attention over packed sequences; sequences never attend to each other (Vaswani et al. 2017, section 3.2).

`plan_attention` prepares once per forward pass what all layers share: the backend, the rows and the mask. `attend`
then computes one layer's attention. The backends compute the same function:

- "rows": batched matmuls and a softmax over rows of equal length. Supports keyed dropout.
- "sdpa": PyTorch's fused attention over the same rows; never writes the (R, R) scores to memory.
- "jagged": PyTorch's fused attention over nested sequences, on a GPU in half precision: no mask.
- "reference": one sequence after the other, for tests.

T tokens, B sequences, R row length, N heads, D head size, H = N D hidden size.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.core.tensors import PackedBatch
from maskwright.kernels.dropout import DropoutKey, dropout_factors, kept_of_signed, seeded_kernels, sign_dropped_
from maskwright.kernels.packing import pack

Backend = Literal["rows", "sdpa", "jagged", "reference"]

# Measured on two CPU cores, D = 64, forward and backward. Time of "sdpa" / time of "rows": 1 at R = 128 with MKL (4
# with oneDNN), 0.67 at R = 512, 0.5 at R = 1024.
_LONGEST_ROW_FOR_PRODUCTS = 256


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What all layers of one forward pass share.

    Attributes:
        backend: How attention is computed.
        cu_seqlens: Shape (B+1,), boundaries of the sequences.
        row_length: R, at least the length of the longest sequence.
        mask: Shape (rows, 1, R, R), 0 for allowed pairs and -inf for others; None if each row is one full sequence.
        row_slots: Shape (T,), the slot of each token, counted through all rows; None if the tokens already are full
            rows ("rows", "sdpa", "reference").
        num_rows: Number of rows ("rows", "sdpa", "reference").
    """

    backend: Backend
    cu_seqlens: Tensor
    row_length: int
    mask: Tensor | None = None
    row_slots: Tensor | None = None
    num_rows: int = 0


@dataclass(frozen=True, slots=True)
class Heads:
    """Number of heads and their dropout (see `attend`)."""

    number: int
    rate: float
    key: DropoutKey | None
    call: int


def choose_backend(row_length: int, device_type: str, dtype: torch.dtype, *, drops: bool) -> Backend:
    """Return the fastest backend. With dropout (`drops`), PyTorch's fused kernel does not work on a CPU."""
    if device_type == "cuda":
        return "jagged" if dtype in (torch.float16, torch.bfloat16) else "sdpa"
    if device_type != "cpu":
        return "rows" if drops else "sdpa"
    return "rows" if drops or row_length <= _LONGEST_ROW_FOR_PRODUCTS else "sdpa"


def plan_attention(batch: PackedBatch, backend: Backend, dtype: torch.dtype) -> AttentionPlan:
    """Prepare what all layers share; `dtype` is that of the mask."""
    cu_seqlens, row_length = batch.cu_seqlens, batch.max_seqlen
    if backend == "jagged":
        return AttentionPlan(backend, cu_seqlens, row_length)
    bounds = cu_seqlens.cpu().numpy().astype(np.int64)
    lengths = np.diff(bounds)
    first_slots, num_rows = pack(lengths, row_length)
    if (lengths == row_length).all():
        return AttentionPlan(backend, cu_seqlens, row_length, num_rows=num_rows)
    slots = np.arange(bounds[-1]) + np.repeat(first_slots - bounds[:-1], lengths)
    # Padding has sequence id -1 and attends to itself only, so that no softmax is over an empty set.
    owners = np.full(num_rows * row_length, -1)
    owners[slots] = np.repeat(np.arange(len(lengths)), lengths)
    rows = torch.from_numpy(owners.reshape(num_rows, row_length)).to(cu_seqlens.device)
    differs = rows[:, None, :, None] != rows[:, None, None, :]
    mask = torch.zeros(differs.shape, dtype=dtype, device=rows.device).masked_fill_(differs, -math.inf)
    row_slots = torch.from_numpy(slots).to(cu_seqlens.device)
    return AttentionPlan(backend, cu_seqlens, row_length, mask=mask, row_slots=row_slots, num_rows=num_rows)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    plan: AttentionPlan,
    *,
    num_heads: int,
    dropout_rate: float = 0.0,
    dropout_key: DropoutKey | None = None,
    dropout_call: int = 0,
) -> Tensor:
    """Return multi-head attention, shape (T, H), of queries, keys and values, each of shape (T, H).

    Args:
        queries: Shape (T, H).
        keys: Shape (T, H).
        values: Shape (T, H).
        plan: From `plan_attention`.
        num_heads: N.
        dropout_rate: Dropout rate of the attention probabilities.
        dropout_key: Key of the micro-batch's masks; None disables dropout.
        dropout_call: Number of this call within the forward pass.
    """
    heads = Heads(num_heads, dropout_rate if dropout_key else 0.0, dropout_key, dropout_call)
    return _BACKENDS[plan.backend](queries, keys, values, plan, heads)


def pad_to_rows(values: Tensor, plan: AttentionPlan) -> Tensor:
    """Return packed values (T, H) as padded rows (rows R, H), with zeros at padding."""
    slots = plan.row_slots
    if slots is None:
        return values
    padded = values.new_zeros(plan.num_rows * plan.row_length, values.shape[1])
    return padded.index_copy_(0, slots, values)


def unpad_rows(values: Tensor, plan: AttentionPlan) -> Tensor:
    """Undo `pad_to_rows`."""
    return values if plan.row_slots is None else values.index_select(0, plan.row_slots)


def _split_heads(values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # (T, H) -> (rows, N, R, D), a view if the tokens are full rows.
    return (
        pad_to_rows(values, plan)
        .view(-1, plan.row_length, heads.number, values.shape[-1] // heads.number)
        .transpose(1, 2)
    )


def _rows(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    tensors = [as_autocast(tensor) for tensor in (queries, keys, values)]
    saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    mixed: Tensor = _RowsAttention.apply(*tensors, plan, heads, saves)  # type: ignore[no-untyped-call]
    return mixed


def _sdpa(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    q, k, v = (_split_heads(tensor, plan, heads) for tensor in (queries, keys, values))
    mask = None if plan.mask is None else plan.mask.to(q.dtype)
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=heads.rate)
    return unpad_rows(mixed.transpose(1, 2).reshape(-1, queries.shape[1]), plan)


def as_autocast(tensor: Tensor) -> Tensor:
    """Cast as autocast casts the inputs of a matmul; it does not reach inside custom autograd functions."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


class _RowsAttention(torch.autograd.Function):
    """Attention over rows that saves only the heads and one block of probabilities for the backward pass.

    The sign bit of a saved probability marks it as dropped, so no mask is saved; the dropout scale is a factor of the
    matmuls. Matmuls are in the precision of the inputs, the softmax computes in fp32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads, saves: bool
    ) -> Tensor:
        q, k, v = (_to_heads(tensor, plan, heads) for tensor in (queries, keys, values))
        alpha = 1 / math.sqrt(q.shape[-1])
        scores = _matmul(q, k.transpose(1, 2), alpha)
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
        return _from_heads(_matmul(kept, v, scale), plan, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probabilities = ctx.saved_tensors
        grad = _to_heads(grad, ctx.plan, ctx.heads)
        shape = ctx.plan, ctx.heads
        drops, (of_queries, of_keys, of_values) = ctx.scale != 1, ctx.needs_input_grad[:3]
        queries_grad = keys_grad = values_grad = None
        if of_values:
            kept = kept_of_signed(probabilities) if drops else probabilities
            values_grad = _from_heads(_matmul(kept.transpose(1, 2), grad, ctx.scale), *shape)
            del kept
        if of_queries or of_keys:
            scores_grad = _matmul(grad, v.transpose(1, 2))
            if drops:
                torch.ops.aten.threshold_backward.grad_input(scores_grad, probabilities, 0, grad_input=scores_grad)
                probabilities = probabilities.abs()
            torch._softmax_backward_data(scores_grad, probabilities, -1, q.dtype, grad_input=scores_grad)
            alpha = ctx.alpha * ctx.scale
            if of_queries:
                queries_grad = _from_heads(_matmul(scores_grad, k, alpha), *shape)
            if of_keys:
                keys_grad = _from_heads(_matmul(scores_grad.transpose(1, 2), q, alpha), *shape)
        return queries_grad, keys_grad, values_grad, None, None, None


def _to_heads(tensor: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # (T, H) -> (rows N, R, D), a copy if N > 1.
    return _split_heads(tensor, plan, heads).reshape(-1, plan.row_length, tensor.shape[-1] // heads.number)


def _from_heads(tensor: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # (rows N, R, D) -> (T, H), a copy if N > 1.
    together = tensor.view(-1, heads.number, *tensor.shape[1:]).transpose(1, 2)
    return unpad_rows(together.reshape(-1, heads.number * tensor.shape[2]), plan)


def _matmul(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Batched left @ right * factor. Autocast ignores functions with `out`.
    product = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(product, left, right, beta=0, alpha=factor, out=product)


def _jagged(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # `torch.nn.attention.varlen` would be shorter, but it has no dropout (torch 2.13).
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            tensor.view(len(tensor), heads.number, -1), plan.cu_seqlens, min_seqlen=1, max_seqlen=plan.row_length
        ).transpose(1, 2)
        for tensor in (queries, keys, values)
    )
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=heads.rate)
    return mixed.transpose(1, 2).values().reshape(queries.shape)


def _reference(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # The dropout masks are those of "rows": each sequence uses its square of its row's mask.
    head_size, row_length = queries.shape[1] // heads.number, plan.row_length
    factors = None
    if heads.key is not None and heads.rate:
        shape = torch.Size((plan.num_rows, heads.number, row_length, row_length))
        factors = dropout_factors(shape, heads.rate, heads.key, heads.call)
    parts = [queries[:0]]
    for start, end in itertools.pairwise(plan.cu_seqlens.tolist()):
        q, k, v = (x[start:end].view(-1, heads.number, head_size).transpose(0, 1) for x in (queries, keys, values))
        probabilities = (q @ k.transpose(1, 2) / math.sqrt(head_size)).softmax(-1)
        if factors is not None:
            row, first = divmod(start if plan.row_slots is None else int(plan.row_slots[start]), row_length)
            square = slice(first, first + end - start)
            probabilities = probabilities * factors[row, :, square, square]
        parts.append((probabilities @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


_BACKENDS = {
    "rows": _rows,
    "sdpa": _sdpa,
    "jagged": _jagged,
    "reference": _reference,
}
