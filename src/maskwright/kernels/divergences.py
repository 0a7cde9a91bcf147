"""Kullback-Leibler divergences of a student from its teacher: of predictions, and of self-attention relations.

M targets, V vocabulary entries; T tokens, N relation heads, D = H / N their width, R row length.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.kernels.row_attention import as_autocast, merge_heads, split_heads
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.vocabulary_losses import (
    BLOCK_ELEMENTS,
    LogitParts,
    apply_loss,
    exact_dtype,
    loss_in_blocks,
    matmul_dtype,
    max_with_index,
)

_RELATIONS_AT_ONCE = 1 << 22
"""Relations of a block: a few temporary tensors of this size are held at once."""
_MASKED = -1e30
"""Score of tokens in different sequences: finite, so that two of them have the difference 0."""


def summed_divergence(
    student: LogitParts, teacher: LogitParts, temperature: float, block_elements: int = BLOCK_ELEMENTS
) -> tuple[Tensor, Tensor]:
    """Return the sum of T^2 KL(softmax(teacher / T) || softmax(student / T)) over M targets, T the temperature.

    Equals `T * T * kl_div(log_softmax(s / T), softmax(t / T), reduction="sum")`. A block holds at most `block_elements`
    logits of student and teacher together. The teacher gets no gradient; the widths E may differ. Also return the
    number of targets at which both have the same best token. Shapes and precisions are those of `Scores`.
    """
    dtype, with_gradients = matmul_dtype(student.weight), torch.is_grad_enabled()
    exact = exact_dtype(dtype)
    with torch.autocast(student.features.device.type, enabled=False):
        fixed = LogitParts(*(part.detach().to(dtype) for part in teacher))

        def block_loss(block: slice, parts: LogitParts) -> tuple[Tensor, Tensor, Tensor]:
            logits = F.linear(*parts).to(exact)
            wanted = F.linear(fixed.features[block], fixed.weight, fixed.bias).to(exact)
            agreed = (max_with_index(logits)[1] == max_with_index(wanted)[1]).sum()
            logits = logits.div_(temperature).log_softmax(dim=1)
            wanted = wanted.div_(temperature).log_softmax(dim=1)
            probabilities = wanted.exp()
            loss = wanted.sub_(logits).mul_(probabilities).sum() * temperature**2
            # d (T^2 KL) / d logits = T (student - teacher).
            return loss, agreed, logits.exp_().sub_(probabilities).mul_(temperature)

        length = max(1, block_elements // (2 * len(student.weight)))
        return apply_loss(
            LogitParts(*(part.to(dtype) for part in student)),
            lambda leaves: loss_in_blocks(leaves, length, block_loss, with_gradients=with_gradients),
        )


def summed_relation_divergence(
    student: Tensor, teacher: Tensor, sequences: Sequences, num_heads: int, block_elements: int = _RELATIONS_AT_ONCE
) -> Tensor:
    """Return the sum over tokens of KL(R(teacher) || R(student)), the mean of the relation heads.

    A token's relations R(x) are `softmax(x_i X^T / sqrt(D))` over the tokens of its sequence, in each head. Shapes
    (T, H) and (T, H'), where N divides both widths. The teacher gets no gradient. Matmuls are in the precision of
    autocast, else of the inputs; softmax and sums in fp32 at least. A block holds at most `block_elements` relations,
    or one row's of one head.
    """
    total = _RelationDivergence.apply(  # type: ignore[no-untyped-call]
        as_autocast(student), as_autocast(teacher.detach()), sequences, num_heads, block_elements
    )
    return cast(Tensor, total)


class _RelationDivergence(torch.autograd.Function):
    """Computes the gradient in the forward pass, so that no relations are saved."""

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, teacher: Tensor, sequences: Sequences, num_heads: int, block_elements: int
    ) -> Tensor:
        rows, mask = sequences.rows, sequences.row_mask()
        states, wanted_states = (split_heads(each, rows, num_heads).flatten(0, 1) for each in (student, teacher))
        exact = torch.promote_types(student.dtype, torch.float32)
        total, grad = student.new_zeros((), dtype=exact), torch.empty_like(states)
        scale = 1 / (num_heads * math.sqrt(states.shape[-1]))
        with_gradient = ctx.needs_input_grad[0]
        row_of_head = torch.arange(len(states), device=student.device) // num_heads
        step = max(1, block_elements // rows.length**2)
        for begin in range(0, len(states), step):
            block = slice(begin, begin + step)
            penalty = None if mask is None else mask[row_of_head[block], 0].clamp(min=_MASKED)
            logs, wanted = (_log_relations(each[block], penalty, exact) for each in (states, wanted_states))
            shares = wanted.exp()
            total += wanted.sub_(logs).mul_(shares).sum() / num_heads
            if with_gradient:
                # Of the scores (i, j) and (j, i), which are one dot product.
                difference = logs.exp_().sub_(shares)
                difference = (difference + difference.transpose(1, 2)).mul_(scale)
                grad[block] = difference.to(states.dtype) @ states[block]
        if with_gradient:
            ctx.save_for_backward(merge_heads(grad, rows, num_heads))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return grad * grads[0], None, None, None, None


def _log_relations(states: Tensor, penalty: Tensor | None, exact: torch.dtype) -> Tensor:
    # (heads, R, D) -> (heads, R, R)
    scores = (states @ states.transpose(1, 2)).to(exact) / math.sqrt(states.shape[-1])
    return torch.log_softmax(scores if penalty is None else scores + penalty, dim=-1)
