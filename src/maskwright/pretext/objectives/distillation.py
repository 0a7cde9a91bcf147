"""Objectives with a teacher: match its predictions (soft targets) and its hidden states (cosine)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from maskwright.core.types import Examples, HeadShape, Targets
from maskwright.pretext.objectives.base import EveryTokenObjective, Objective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from maskwright.core.tensors import LossInputs, LossTerm

_MLM = "mlm"


class SoftTargets(EveryTokenObjective):
    """Match the teacher's distribution over the vocabulary (Hinton et al. 2015; Sanh et al. 2019, section 3).

    The loss is the Kullback-Leibler divergence of the student's distribution from the teacher's, both softened by a
    temperature T, times T squared, which makes the size of its gradients independent of T (distillation:
    distiller.py:372-450). Both see the same masked input. A prediction is correct where the student's best token is
    the teacher's. The logits are those of the masked-token heads; this objective has no weights of its own.

    Attributes:
        temperature: T, by which logits are divided before the softmax.
        loss_at: "selected" is the original's option `restrict_ce_to_mask` (distillation: train.py).
    """

    kind: Literal["soft_targets"] = "soft_targets"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "mlm"})
    needs_teacher_scores: ClassVar[bool] = True
    temperature: float = Field(default=2.0, gt=0)

    def loss(self, head: "nn.Module", inputs: "LossInputs") -> "LossTerm":
        import torch

        from maskwright.core.tensors import LossTerm
        from maskwright.kernels import ops

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        positions = inputs.targets.positions
        student_head, teacher_head = inputs.view.heads[_MLM], inputs.teacher.heads[_MLM]
        features = student_head(inputs.view.output.hidden[positions])
        with torch.no_grad():
            teacher_features = teacher_head(inputs.teacher.output.hidden[positions])
        total, agreed = ops.summed_divergence(
            ops.LogitParts(features, inputs.view.word_embeddings, cast("Tensor", student_head.bias)),
            ops.LogitParts(teacher_features, inputs.teacher.word_embeddings, cast("Tensor", teacher_head.bias)),
            self.temperature,
        )
        return LossTerm(total=total, correct=agreed)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V; the teacher's own head is counted with the teacher."""
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size)


class Cosine(Objective):
    """Align the last hidden states of all tokens with the teacher's (Sanh et al. 2019, section 3).

    The loss at a token is 1 - cos(student, teacher), the cosine-embedding loss with target 1 (distillation:
    distiller.py:372-450). No accuracy; the mean cosine is reported. No weights of its own.
    """

    kind: Literal["cosine"] = "cosine"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    needs_teacher_width: ClassVar[bool] = True

    def targets(self, examples: Examples) -> Targets:
        """Return all tokens, special ones too; the labels, the tokens themselves, are not used."""
        ids = examples.instances.ids
        return Targets(positions=np.arange(len(ids)), labels=ids.astype(np.int64))

    def loss(self, head: "nn.Module", inputs: "LossInputs") -> "LossTerm":
        """Sum 1 - cosine over the targets, in fp32. Tally: the sum of the "cosine"."""
        import torch

        from maskwright.core.tensors import LossTerm

        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        positions = inputs.targets.positions
        student, teacher = (view.output.hidden[positions] for view in (inputs.view, inputs.teacher))
        exact = torch.promote_types(student.dtype, torch.float32)
        cosines = torch.nn.functional.cosine_similarity(student.to(exact), teacher.to(exact), dim=1)
        return LossTerm(total=(1 - cosines).sum(), correct=None, tallies={"cosine": cosines.detach().sum()})

    def flops(self, shape: HeadShape) -> float:
        """Three dot products of H numbers."""
        return 6.0 * shape.hidden_size

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the "mean" cosine."""
        return {"mean": tallies["cosine"] / count}
