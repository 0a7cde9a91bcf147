"""Attention over a flat stream of tokens; sequences never attend to each other (Vaswani et al. 2017, 3.2).

What all layers share (the backend, the rows, the mask) is decided once, by looking at the batch (`attention_plan`).
`attend` is then one function of queries, keys and values; its backends agree with each other.

T tokens, N heads, H hidden size.
"""

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.kernels.attention_over_rows import attend_by_products, attend_fused
from maskwright.kernels.attention_plan import AttentionPlan, Heads
from maskwright.kernels.dropout import DropoutKey, dropout_factors, seeded_kernels


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
    heads = Heads(num_heads, dropout_rate if dropout_key else 0.0, dropout_key, dropout_call)
    return _BACKENDS[plan.backend](queries, keys, values, plan, heads)


def _jagged(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
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


def _reference(queries: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, heads: Heads) -> Tensor:
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


_BACKENDS = {
    "rows": attend_by_products,
    "sdpa": attend_fused,
    "jagged": _jagged,
    "reference": _reference,
}
