"""Cosine: let every hidden state point where the teacher's points."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from maskwright.core.tensors import HeadShape, LossInputs, LossTerm
from maskwright.core.types import Examples, Targets
from maskwright.pretext.objectives.base import Objective


class Cosine(Objective):
    """Turn the last hidden states of all tokens towards the teacher's (Sanh et al. 2019, section 3).

    The loss at a token is 1 - cos(student, teacher), the cosine-embedding loss with target 1 (distillation:
    distiller.py:372-450). An angle is neither right nor wrong; the mean cosine is measured. No weights of its own.
    """

    kind: Literal["cosine"] = "cosine"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    needs_teacher_width: ClassVar[bool] = True

    def targets(self, examples: Examples) -> Targets:
        """Return all tokens, special ones too; the labels, the tokens themselves, are not used."""
        ids = examples.instances.ids
        return Targets(positions=np.arange(len(ids)), labels=ids.astype(np.int64))

    def head(self, shape: HeadShape) -> nn.Module:
        """No weights of its own (see `Objective.head`)."""
        return nn.Identity()

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum 1 - cosine over the targets, in fp32 (see `Objective.loss`). Tally: the sum of the "cosine"."""
        assert inputs.teacher is not None, "Recipe checks that there is a teacher"
        places = inputs.targets.positions
        mine, theirs = (view.output.hidden[places] for view in (inputs.view, inputs.teacher))
        exact = torch.promote_types(mine.dtype, torch.float32)
        cosines = nn.functional.cosine_similarity(mine.to(exact), theirs.to(exact), dim=1)
        return LossTerm(
            total=(1 - cosines).sum(),
            count=len(places),
            correct=None,
            tallies={"cosine": cosines.detach().sum()},
        )

    def flops(self, shape: HeadShape) -> float:
        """Three products of H numbers (see `Objective.flops`)."""
        return 6.0 * shape.hidden_size

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the "mean" cosine."""
        return {"mean": tallies["cosine"] / count}
