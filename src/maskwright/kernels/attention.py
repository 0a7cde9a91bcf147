"""Attention over packed sequences; sequences never attend to each other (Vaswani et al. 2017, section 3.2).

`plan_attention` prepares once per forward pass what all layers share: the backend, the rows and the mask. `attend`
then computes one layer's attention. The backends compute the same function:

- "rows": batched matmuls and a softmax over rows of equal length. Supports keyed dropout.
- "sdpa": PyTorch's fused attention over the same rows; never writes the (R, R) scores to memory.
- "jagged": PyTorch's fused attention over nested sequences, on a GPU in half precision: no mask.
- "kernels": whole sublayers in Triton (`cuda.sublayers`), for training on a GPU in bfloat16; not for `attend`.
- "reference": one sequence after the other, for tests.

T tokens, R row length, N heads, D head size, H = N D hidden size, S runs.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda.rounded import OnGpu
from maskwright.kernels.dropout import DropoutKey, dropout_factors, kept_of_signed, seeded_kernels, sign_dropped_

Backend = Literal["rows", "sdpa", "jagged", "kernels", "reference"]
KEYED_DROPOUT_BACKENDS: frozenset[Backend] = frozenset({"rows", "reference"})
"""Backends whose dropout masks come from the key's random bits (`dropout.RandomWords`). The kernels of the others
generate their own, seeded by the key."""

# Measured on two CPU cores, D = 64, forward and backward. Time of "sdpa" / time of "rows": 1 at R = 128 with MKL (4
# with oneDNN), 0.67 at R = 512, 0.5 at R = 1024.
_LONGEST_ROW_FOR_PRODUCTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs of tokens that attend to each other.

    Attributes:
        offsets: Boundaries of the runs. Shape (S+1,), int64, from 0 to T.
        real: False for padding, whose results are zero. Shape (S,), bool.
        slots: Slot of each run's first token in the concatenated rows: dropout is keyed by a token's slot. Shape (S,),
            int64; no real run crosses the end of its row.
        row_length: R, slots of a row.
        num_rows: Number of rows.
    """

    offsets: Tensor
    real: Tensor
    slots: Tensor
    row_length: int
    num_rows: int

    def pair_shape(self, num_heads: int) -> torch.Size:
        """Return the shape of the attention dropout mask: (rows, N, R, R)."""
        return torch.Size((self.num_rows, num_heads, self.row_length, self.row_length))


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What all layers of one forward pass share.

    Attributes:
        backend: How attention is computed.
        row_length: R.
        mask: Shape (rows, 1, R, R), 0 for allowed pairs and -inf for others; None if each row is one full sequence.
        row_slots: As in `FlatBatch`; None if the tokens already are full rows ("rows", "sdpa").
        num_rows: Number of rows ("rows", "sdpa").
        offsets: Shape (S+1,), boundaries of the runs of one sequence ("jagged").
        longest: Upper bound of the run length ("jagged").
        runs: The runs, for "reference".
        on_gpu: What the layers of "kernels" share.
    """

    backend: Backend
    row_length: int
    mask: Tensor | None = None
    row_slots: Tensor | None = None
    num_rows: int = 0
    offsets: Tensor | None = None
    longest: int = 0
    runs: Runs | None = None
    on_gpu: OnGpu | None = None


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


def _num_rows(batch: FlatBatch, row_length: int) -> int:
    assert (batch.num_rows is None) == (batch.row_slots is None), "num_rows and row_slots come together"
    return len(batch.ids) // row_length if batch.num_rows is None else batch.num_rows


def plan_attention(batch: FlatBatch, backend: Backend, dtype: torch.dtype) -> AttentionPlan:
    """Prepare what all layers share, for a batch cut into rows; `dtype` is that of the mask."""
    if batch.row_length is None:
        raise ValueError("attention needs a batch cut into rows: see `rows.cut_into_rows`")
    row_length, slots = batch.row_length, batch.row_slots
    if backend == "jagged":
        offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
        # Padding behind the last sequence is a run too, and may be longer than a row.
        longest = max(row_length, len(batch.ids) - batch.num_tokens)
        return AttentionPlan(backend, row_length, offsets=offsets, longest=longest)
    num_rows = _num_rows(batch, row_length)
    if backend == "reference":
        return AttentionPlan(backend, row_length, runs=_runs(batch, row_length, num_rows))
    if batch.num_tokens == len(batch.ids) == num_rows * row_length:
        slots = None  # No padding: the tokens are full rows.
    if batch.num_tokens == num_rows * row_length and len(batch.first_tokens) == num_rows:
        return AttentionPlan(backend, row_length, row_slots=slots, num_rows=num_rows)
    rows = batch.sequence_ids
    if slots is not None:
        rows = rows.new_full((num_rows * row_length,), -1).index_copy_(0, slots, rows[: len(slots)])
    rows = rows.view(num_rows, row_length)
    # Padding has sequence id -1 and attends to itself only, so that no softmax is over an empty set.
    differs = rows[:, None, :, None] != rows[:, None, None, :]
    mask = torch.zeros(differs.shape, dtype=dtype, device=rows.device).masked_fill_(differs, -math.inf)
    return AttentionPlan(backend, row_length, mask=mask, row_slots=slots, num_rows=num_rows)


def _runs(batch: FlatBatch, row_length: int, num_rows: int) -> Runs:
    slots = batch.row_slots
    offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
    begins = offsets[:-1]
    real = batch.sequence_ids[begins] >= 0
    if slots is not None:
        # Padding behind the last token is in no row.
        begins = torch.cat([slots, slots.new_zeros(1)])[begins.clamp(max=len(slots))]
    return Runs(offsets=offsets, real=real, slots=begins, row_length=row_length, num_rows=num_rows)


def run_offsets(sequence_ids: Tensor, row_length: int | None) -> Tensor:
    """Return the boundaries, shape (S+1,), of runs of equal sequence ids (T,); with a row length, rows end runs too."""
    begins = torch.ones_like(sequence_ids, dtype=torch.bool)
    begins[1:] = sequence_ids[1:] != sequence_ids[:-1]
    if row_length is not None:
        begins[::row_length] = True
    starts = begins.nonzero().squeeze(1)
    return torch.cat([starts, starts.new_tensor([len(sequence_ids)])])


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
    return padded.index_copy_(0, slots, values[: len(slots)])


def unpad_rows(values: Tensor, plan: AttentionPlan, num_tokens: int) -> Tensor:
    """Undo `pad_to_rows`; values behind the real tokens are zero."""
    slots = plan.row_slots
    if slots is None:
        return values
    real, padding = values.index_select(0, slots), num_tokens - len(slots)
    return F.pad(real, (0, 0, 0, padding)) if padding else real


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
    return unpad_rows(mixed.transpose(1, 2).reshape(-1, queries.shape[1]), plan, len(queries))


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
            ctx.num_tokens = len(queries)
        return _from_heads(_matmul(kept, v, scale), plan, heads, len(queries))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, probabilities = ctx.saved_tensors
        grad = _to_heads(grad, ctx.plan, ctx.heads)
        shape = ctx.plan, ctx.heads, ctx.num_tokens
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


def _from_heads(tensor: Tensor, plan: AttentionPlan, heads: Heads, num_tokens: int) -> Tensor:
    # (rows N, R, D) -> (T, H), a copy if N > 1.
    together = tensor.view(-1, heads.number, *tensor.shape[1:]).transpose(1, 2)
    return unpad_rows(together.reshape(-1, heads.number * tensor.shape[2]), plan, num_tokens)


def _matmul(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Batched left @ right * factor. Autocast ignores functions with `out`.
    product = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(product, left, right, beta=0, alpha=factor, out=product)


def _jagged(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # `torch.nn.attention.varlen` would be shorter, but it has no dropout (torch 2.13).
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            tensor.view(len(tensor), heads.number, -1), plan.offsets, min_seqlen=1, max_seqlen=plan.longest
        ).transpose(1, 2)
        for tensor in (queries, keys, values)
    )
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=heads.rate)
    return mixed.transpose(1, 2).values().reshape(queries.shape)


def _reference(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
    # The dropout masks are those of "rows": each run uses its square of its row's mask.
    assert plan.runs is not None
    runs = plan.runs
    head_size, row_length = queries.shape[1] // heads.number, plan.row_length
    factors = None
    if heads.key is not None and heads.rate:
        factors = dropout_factors(runs.pair_shape(heads.number), heads.rate, heads.key, heads.call)
    zeros = 0 * (queries + keys + values)  # With zero gradients.
    parts = [zeros[:0]]
    bounds = itertools.pairwise(runs.offsets.tolist())
    for (start, end), real, slot in zip(bounds, runs.real.tolist(), runs.slots.tolist(), strict=True):
        if not real:
            parts.append(zeros[start:end])
            continue
        q, k, v = (x[start:end].view(-1, heads.number, head_size).transpose(0, 1) for x in (queries, keys, values))
        probabilities = (q @ k.transpose(1, 2) / math.sqrt(head_size)).softmax(-1)
        if factors is not None:
            row, first = divmod(slot, row_length)
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
