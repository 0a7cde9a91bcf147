"""Attention over a flat stream of tokens; sequences never attend to each other (Vaswani et al. 2017, 3.2).

`plan_attention` looks at a batch once and decides what all layers share: the backend, the rows, the mask.
`attend` is then one function of queries, keys and values; its backends agree with each other:

- "native": our own C code over the sequences themselves, on a processor that it is compiled for. Takes keyed dropout.
- "rows": batched matrix products and a softmax over rows of equal length. Takes keyed dropout.
- "sdpa": PyTorch's fused attention over the same rows; never writes the (R, R) scores to memory.
- "jagged": PyTorch's fused attention over the sequences themselves, on a GPU in half precision: no mask.
- "kernels": whole sublayers by our own kernels (`gpu.sublayers`), in training on a GPU in bfloat16; not for `attend`.
- "reference": one sequence after the other, for tests.

T tokens, R row length, N heads, D head size, H = N D.
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
from maskwright.encoder.dropout import DropoutKey, dropout_factors, kept_of_signed, seeded_kernels, sign_dropped_
from maskwright.encoder.gpu.rounded import OnGpu
from maskwright.encoder.native.attention import Runs, attend_runs, takes

Backend = Literal["native", "rows", "sdpa", "jagged", "kernels", "reference"]

# Measured on two CPU cores, heads of 64, forward and backward: at R = 128 both take the same time with MKL
# and the rows a quarter with oneDNN; at R = 512 the fused kernel needs two thirds of the time, at R = 1024
# half.
_LONGEST_ROW_FOR_PRODUCTS = 256
_MOST_PAIRS_IN_BF16 = {True: 0.85, False: 0.7}
"""Our own code computes in fp32. The library's products of bf16 are faster, where of the pairs of tokens in rows more
than this share (with dropout or without) are pairs of one sequence (LOG.md, "streams without the filler of rows")."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What all layers of one forward pass share.

    Attributes:
        backend: How attention is computed.
        row_length: R.
        mask: Shape (number of rows, 1, R, R), 0 where a token may look and -inf where not; None where all of a row may.
        row_slots: As in `FlatBatch`; None where the stream is the rows themselves ("rows", "sdpa").
        num_rows: How many rows there are, where that is asked ("rows", "sdpa").
        offsets: Shape (S+1,), where the runs of tokens of one sequence begin and end ("jagged").
        longest: At least the length of the longest run.
        runs: The same for "native" and "reference".
        on_gpu: The same for "kernels", and what else its layers share.
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


def choose_backend(
    row_length: int, device_type: str, dtype: torch.dtype, *, drops: bool, head_size: int, pairs: float = 1.0
) -> Backend:
    """Choose the fastest backend that can do what is asked.

    Args:
        row_length: R.
        device_type: "cpu", "cuda", ...
        dtype: Precision of the products.
        drops: Whether attention probabilities are dropped. On a CPU PyTorch's fused kernel cannot.
        head_size: D.
        pairs: Which share of the pairs of slots of a row is of one sequence (`share_of_pairs`): "native" computes no
            others.
    """
    if device_type == "cuda":
        return "jagged" if dtype in (torch.float16, torch.bfloat16) else "sdpa"
    if device_type != "cpu":
        return "rows" if drops else "sdpa"
    usual: Backend = "rows" if drops or row_length <= _LONGEST_ROW_FOR_PRODUCTS else "sdpa"
    if not takes(head_size, device_type, dtype):
        return usual
    return "native" if usual == "sdpa" or native_is_faster(dtype, pairs, drops=drops) else usual


def native_is_faster(dtype: torch.dtype, pairs: float, *, drops: bool) -> bool:
    """Say whether our own code is faster than products over rows (see `choose_backend`)."""
    return dtype == torch.float32 or pairs <= _MOST_PAIRS_IN_BF16[drops]


def share_of_pairs(batch: FlatBatch, dtype: torch.dtype) -> float:
    """Return which share of the pairs of slots of a row are of two tokens of one sequence; 1 where nothing hangs on it.

    Args:
        batch: A batch cut into rows.
        dtype: Precision of the products. Only in bf16 on a processor does the choice look at the share; counting takes
            a moment, and on a GPU would wait for it.
    """
    assert batch.row_length is not None
    if dtype != torch.bfloat16 or batch.ids.device.type != "cpu" or not len(batch.ids):
        return 1.0
    offsets = run_offsets(batch.sequence_ids, None if batch.row_slots is not None else batch.row_length)
    lengths = offsets.diff()[batch.sequence_ids[offsets[:-1]] >= 0].double()
    return float(lengths.square().sum()) / max(1, _num_rows(batch, batch.row_length) * batch.row_length**2)


def _num_rows(batch: FlatBatch, row_length: int) -> int:
    assert (batch.num_rows is None) == (batch.row_slots is None), "both say how a stream lies in its rows"
    return len(batch.ids) // row_length if batch.num_rows is None else batch.num_rows


def plan_attention(batch: FlatBatch, backend: Backend, dtype: torch.dtype) -> AttentionPlan:
    """Prepare what all layers share.

    Args:
        batch: A batch cut into rows (`row_length` is not None).
        backend: From `choose_backend`.
        dtype: Precision of the mask.
    """
    if batch.row_length is None:
        raise ValueError("attention needs a batch cut into rows: see `rows.cut_into_rows`")
    row_length, slots = batch.row_length, batch.row_slots
    if backend == "jagged":
        offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
        # Filler behind the last sequence is a run too, which may be longer than a short row.
        longest = max(row_length, len(batch.ids) - batch.num_tokens)
        return AttentionPlan(backend, row_length, offsets=offsets, longest=longest)
    num_rows = _num_rows(batch, row_length)
    if backend in ("native", "reference"):
        return AttentionPlan(backend, row_length, runs=_runs(batch, row_length, num_rows))
    if batch.num_tokens == len(batch.ids) == num_rows * row_length:
        slots = None  # No filler: the stream is the rows themselves.
    if batch.num_tokens == num_rows * row_length and len(batch.first_tokens) == num_rows:
        return AttentionPlan(backend, row_length, row_slots=slots, num_rows=num_rows)
    rows = batch.sequence_ids
    if slots is not None:
        rows = rows.new_full((num_rows * row_length,), -1).index_copy_(0, slots, rows[: len(slots)])
    rows = rows.view(num_rows, row_length)
    # Filler has the number -1 of its own kind and looks at itself only, so that no softmax is over nothing.
    apart = rows[:, None, :, None] != rows[:, None, None, :]
    mask = torch.zeros(apart.shape, dtype=dtype, device=rows.device).masked_fill_(apart, -math.inf)
    return AttentionPlan(backend, row_length, mask=mask, row_slots=slots, num_rows=num_rows)


def _runs(batch: FlatBatch, row_length: int, num_rows: int) -> Runs:
    slots = batch.row_slots
    offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
    begins = offsets[:-1]
    real = batch.sequence_ids[begins] >= 0
    if slots is not None:
        # Filler behind the last token lies in no row.
        begins = torch.cat([slots, slots.new_zeros(1)])[begins.clamp(max=len(slots))]
    longest = int(offsets.diff().max()) if len(real) else 0
    return Runs(offsets=offsets, real=real, slots=begins, row_length=row_length, num_rows=num_rows, longest=longest)


def run_offsets(sequence_ids: Tensor, row_length: int | None) -> Tensor:
    """Return where runs of equal sequence numbers begin and end; a row's end ends a run. Shape (S+1,).

    Args:
        sequence_ids: Shape (T,).
        row_length: R; None where the stream is not the rows themselves.
    """
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
    """Mix each token's values over the tokens of its own sequence.

    Args:
        queries: Shape (T, H).
        keys: Shape (T, H).
        values: Shape (T, H).
        plan: From `plan_attention`.
        num_heads: N.
        dropout_rate: Share of the attention probabilities dropped.
        dropout_key: Key of the micro-batch's masks; None drops nothing.
        dropout_call: Number of this call within the forward pass.

    Returns:
        Shape (T, H).
    """
    heads = _Heads(num_heads, dropout_rate if dropout_key else 0.0, dropout_key, dropout_call)
    return _BACKENDS[plan.backend](queries, keys, values, plan, heads)


@dataclass(frozen=True, slots=True)
class _Heads:
    """How many heads, and what they drop."""

    number: int
    rate: float
    key: DropoutKey | None
    call: int


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


def _by_rows(values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    # (T, H) -> (rows, N, R, D), a view where the stream is the rows.
    laid = laid_into_rows(values, plan)
    return laid.view(-1, plan.row_length, heads.number, values.shape[-1] // heads.number).transpose(1, 2)


def _rows(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    tensors = [_as_autocast(tensor) for tensor in (queries, keys, values)]
    saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    mixed: Tensor = _RowsAttention.apply(*tensors, plan, heads, saves)  # type: ignore[no-untyped-call]
    return mixed


def _as_autocast(tensor: Tensor) -> Tensor:
    # What autocast does to the inputs of a product; it looks at functions, not at what is inside of ours.
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
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads, saves: bool
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


def _to_heads(tensor: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    # (T, H) -> (rows N, R, D), a copy if N > 1.
    return _by_rows(tensor, plan, heads).reshape(-1, plan.row_length, tensor.shape[-1] // heads.number)


def _from_heads(tensor: Tensor, plan: AttentionPlan, heads: _Heads, num_tokens: int) -> Tensor:
    # (rows N, R, D) -> (T, H), a copy if N > 1.
    together = tensor.view(-1, heads.number, *tensor.shape[1:]).transpose(1, 2)
    return taken_from_rows(together.reshape(-1, heads.number * tensor.shape[2]), plan, num_tokens)


def _product(left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
    # Each matrix of the left by that of the right, times a factor. Autocast leaves functions with `out` alone.
    product = left.new_empty(len(left), left.shape[1], right.shape[2])
    return torch.baddbmm(product, left, right, beta=0, alpha=factor, out=product)


def _native(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    assert plan.runs is not None
    return attend_runs(
        _as_autocast(queries),
        _as_autocast(keys),
        _as_autocast(values),
        plan.runs,
        num_heads=heads.number,
        dropout_rate=heads.rate,
        dropout_key=heads.key,
        dropout_call=heads.call,
    )


def _sdpa(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    q, k, v = (_by_rows(tensor, plan, heads) for tensor in (queries, keys, values))
    mask = None if plan.mask is None else plan.mask.to(q.dtype)
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=heads.rate)
    return taken_from_rows(mixed.transpose(1, 2).reshape(-1, queries.shape[1]), plan, len(queries))


def _jagged(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    # `torch.nn.attention.varlen` would be the shorter way, but it has no dropout (torch 2.13).
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            tensor.view(len(tensor), heads.number, -1), plan.offsets, min_seqlen=1, max_seqlen=plan.longest
        ).transpose(1, 2)
        for tensor in (queries, keys, values)
    )
    with seeded_kernels(heads.key if heads.rate else None, heads.call):
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=heads.rate)
    return mixed.transpose(1, 2).values().reshape(queries.shape)


def _reference(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: _Heads) -> Tensor:
    # Draws the masks that "rows" draws and takes each run's square out of its row's.
    assert plan.runs is not None
    runs = plan.runs
    head_size, row_length = queries.shape[1] // heads.number, plan.row_length
    factors = None
    if heads.key is not None and heads.rate:
        factors = dropout_factors(runs.squares(heads.number), heads.rate, heads.key, heads.call)
    nothing = 0 * (queries + keys + values)  # Zeros, and zeros for gradients.
    parts = [nothing[:0]]
    stretches = itertools.pairwise(runs.offsets.tolist())
    for (start, end), real, slot in zip(stretches, runs.real.tolist(), runs.slots.tolist(), strict=True):
        if not real:
            parts.append(nothing[start:end])
            continue
        q, k, v = (x[start:end].view(-1, heads.number, head_size).transpose(0, 1) for x in (queries, keys, values))
        probabilities = (q @ k.transpose(1, 2) / math.sqrt(head_size)).softmax(-1)
        if factors is not None:
            row, first = divmod(slot, row_length)
            square = slice(first, first + end - start)
            probabilities = probabilities * factors[row, :, square, square]
        parts.append((probabilities @ v).transpose(0, 1).flatten(1))
    return torch.cat(parts)


_BACKENDS = {"native": _native, "rows": _rows, "sdpa": _sdpa, "jagged": _jagged, "reference": _reference}
