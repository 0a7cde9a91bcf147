"""Soft targets: say not only which token is right, but how likely a teacher finds every other one."""

from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.core.tensors import HeadShape, LossInputs, LossTerm
from maskwright.core.types import Examples, Targets
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.cross_entropy_blocks import (
    BLOCK_ELEMENTS,
    ended,
    exact_dtype,
    in_blocks,
    keep,
    scaled_once,
)
from maskwright.pretext.objectives.highest import highest

_MLM = "mlm"


class SoftTargets(Objective):
    """Be as sure as the teacher of every entry of the vocabulary (Hinton et al. 2015; Sanh et al. 2019, section 3).

    The loss is the Kullback-Leibler divergence of the student's distribution from the teacher's, both softened by a
    temperature T, times T squared, which keeps the size of its gradients whatever T is (distillation:
    distiller.py:372-450). Both see the same masked input. An answer counts as right where the student's best token is
    the teacher's. The scores are those of the masked-token heads; this objective has no weights of its own.

    Attributes:
        temperature: T, by which scores are divided before the softmax.
        loss_at: Where the teacher is asked: "everywhere", at special tokens too, or at the "selected" tokens only
            (distillation: train.py, restrict_ce_to_mask).
    """

    kind: Literal["soft_targets"] = "soft_targets"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "mlm"})
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    needs_teacher_scores: ClassVar[bool] = True
    temperature: float = Field(default=2.0, gt=0)
    loss_at: Literal["everywhere", "selected"] = "everywhere"

    def targets(self, examples: Examples) -> Targets:
        """Return where the teacher is asked; the labels, the tokens that stood there, are not used."""
        ids = examples.instances.ids
        positions = np.arange(len(ids)) if self.loss_at == "everywhere" else examples.selection.positions
        return Targets(positions=positions, labels=ids[positions].astype(np.int64))

    def head(self, shape: HeadShape) -> nn.Module:
        """No weights of its own (see `Objective.head`)."""
        return nn.Identity()

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum the divergence over the targets (see `Objective.loss`)."""
        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        places = inputs.targets.positions
        mine, teachers = inputs.view.heads[_MLM], inputs.teacher.heads[_MLM]
        features = mine(inputs.view.output.hidden[places])
        with torch.no_grad():
            teacher_features = teachers(inputs.teacher.output.hidden[places])
        agreement = summed_divergence(
            Scorer(features, inputs.view.word_embeddings, cast(Tensor, mine.bias)),
            Scorer(teacher_features, inputs.teacher.word_embeddings, cast(Tensor, teachers.bias)),
            self.temperature,
        )
        return LossTerm(total=agreement.total, count=len(places), correct=agreement.agreed)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V (see `Objective.flops`); the teacher's own head is counted with the teacher."""
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size)

    def predictions_per_token(self, rate: float, length: float) -> float:
        """Every token, or the share that is selected (see `Objective.predictions_per_token`)."""
        return 1.0 if self.loss_at == "everywhere" else rate


class Scorer(NamedTuple):
    """What scores of the whole vocabulary are made of: `features @ weight.T + bias`.

    Attributes:
        features: Shape (M, E).
        weight: Shape (V, E).
        bias: Shape (V,).
    """

    features: Tensor
    weight: Tensor
    bias: Tensor


class Agreement(NamedTuple):
    """How a student's distributions stand to a teacher's.

    Attributes:
        total: Summed divergence times the squared temperature, in nats (scalar, fp32 or finer; differentiable once,
            and backward runs once).
        agreed: At how many places both find the same token best (scalar, int64).
    """

    total: Tensor
    agreed: Tensor


def summed_divergence(
    student: Scorer, teacher: Scorer, temperature: float, block_elements: int = BLOCK_ELEMENTS
) -> Agreement:
    """Sum T^2 KL(softmax(teacher / T) || softmax(student / T)) over M places.

    Equals `T * T * kl_div(log_softmax(s / T), softmax(t / T), reduction="sum")` of both scores as a whole. They are
    made in blocks of places and the student's turned into their own gradient at once, so that no more than one block
    is ever held; the plain way holds both of them several times.

    Args:
        student: Scores to be trained.
        teacher: Scores to be matched, over the same vocabulary; they get no gradient. The widths may differ.
        temperature: T.
        block_elements: Most scores held at a time, both sides counted.
    """
    device = student.features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else student.weight.dtype
    with torch.autocast(device, enabled=False):
        mine = [part.to(dtype) for part in student]
        theirs = [part.detach().to(dtype) for part in teacher]
        rows = max(1, block_elements // (2 * len(student.weight)))
        total, agreed = _SummedDivergence.apply(  # type: ignore[no-untyped-call]
            *mine, *theirs, temperature, rows, torch.is_grad_enabled()
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
        # Sums are kept in fp32 (or fp64) whatever the precision of the products.
        exact = exact_dtype(weight.dtype)
        total = weight.new_zeros((), dtype=exact)
        agreed = torch.zeros((), dtype=torch.int64, device=weight.device)
        bias_grad = bias.new_zeros(bias.shape if with_gradients else 0, dtype=exact)

        def slopes_of(part: slice, block: Tensor) -> Tensor | None:
            scores = nn.functional.linear(block, weight, bias).to(exact)
            wanted = nn.functional.linear(teacher_features[part], teacher_weight, teacher_bias).to(exact)
            agreed.add_((highest(scores)[1] == highest(wanted)[1]).sum())
            scores = scores.div_(temperature).log_softmax(dim=1)
            wanted = wanted.div_(temperature).log_softmax(dim=1)
            probabilities = wanted.exp()
            total.add_((wanted.sub_(scores).mul_(probabilities)).sum() * temperature**2)
            if not with_gradients:
                return None
            # d (T^2 KL) / d scores = T (student - teacher), written over the scores.
            slopes = scores.exp_().sub_(probabilities).mul_(temperature)
            bias_grad.add_(slopes.sum(dim=0))
            return slopes.to(weight.dtype)

        features_grad, weight_grad = in_blocks(features, weight, len(features), rows, slopes_of)
        if with_gradients:
            keep(ctx, features_grad, ended(weight_grad, weight), bias_grad.to(bias.dtype))
        ctx.mark_non_differentiable(agreed)
        return total, agreed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_once(ctx, slope), *[None] * 6
