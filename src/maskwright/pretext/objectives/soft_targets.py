"""Kullback-Leibler divergence of a student's distributions over the vocabulary from a teacher's, in blocks."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.kernels.cross_entropy import (
    BLOCK_ELEMENTS,
    cast_weight_grad,
    exact_dtype,
    in_blocks,
    max_with_index,
    save_gradients,
    scale_in_place,
)


class Scorer(NamedTuple):
    """The parts of logits over the vocabulary: `features @ weight.T + bias`.

    Attributes:
        features: Shape (M, E).
        weight: Shape (V, E).
        bias: Shape (V,).
    """

    features: Tensor
    weight: Tensor
    bias: Tensor


class Agreement(NamedTuple):
    """Divergence and agreement of student and teacher.

    Attributes:
        total: Summed divergence times the squared temperature, in nats (scalar, fp32 or finer; differentiable once).
        agreed: Number of positions with the same best token (scalar, int64).
    """

    total: Tensor
    agreed: Tensor


def summed_divergence(
    student: Scorer, teacher: Scorer, temperature: float, block_elements: int = BLOCK_ELEMENTS
) -> Agreement:
    """Sum T^2 KL(softmax(teacher / T) || softmax(student / T)) over M positions.

    Equals `T * T * kl_div(log_softmax(s / T), softmax(t / T), reduction="sum")`. Logits are computed in blocks of
    positions of at most `block_elements` numbers, and the student's become their gradient at once, so no more than one
    block is in memory. The teacher gets no gradient; the widths may differ.
    """
    device = student.features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else student.weight.dtype
    with torch.autocast(device, enabled=False):
        own = [part.to(dtype) for part in student]
        theirs = [part.detach().to(dtype) for part in teacher]
        rows = max(1, block_elements // (2 * len(student.weight)))
        total, agreed = _SummedDivergence.apply(  # type: ignore[no-untyped-call]
            *own, *theirs, temperature, rows, torch.is_grad_enabled()
        )
    return Agreement(total, agreed)


class _SummedDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        teacher_features: Tensor,
        teacher_weight: Tensor,
        teacher_bias: Tensor,
        temperature: float,
        rows: int,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        # Sums are in fp32 (or fp64) whatever the precision of the matmuls.
        exact = exact_dtype(weight.dtype)
        total = weight.new_zeros((), dtype=exact)
        agreed = torch.zeros((), dtype=torch.int64, device=weight.device)
        bias_grad = bias.new_zeros(bias.shape if with_gradients else 0, dtype=exact)

        def gradient_of(part: slice, block: Tensor) -> Tensor | None:
            scores = nn.functional.linear(block, weight, bias).to(exact)
            wanted = nn.functional.linear(teacher_features[part], teacher_weight, teacher_bias).to(exact)
            agreed.add_((max_with_index(scores)[1] == max_with_index(wanted)[1]).sum())
            scores = scores.div_(temperature).log_softmax(dim=1)
            wanted = wanted.div_(temperature).log_softmax(dim=1)
            probabilities = wanted.exp()
            total.add_((wanted.sub_(scores).mul_(probabilities)).sum() * temperature**2)
            if not with_gradients:
                return None
            # d (T^2 KL) / d scores = T (student - teacher), written over the scores.
            grad = scores.exp_().sub_(probabilities).mul_(temperature)
            bias_grad.add_(grad.sum(dim=0))
            return grad.to(weight.dtype)

        features_grad, weight_grad = in_blocks(features, weight, len(features), rows, gradient_of)
        if with_gradients:
            save_gradients(ctx, features_grad, cast_weight_grad(weight_grad, weight), bias_grad.to(bias.dtype))
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scale_in_place(ctx, grad), *[None] * 6
