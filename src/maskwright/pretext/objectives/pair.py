"""What the three tasks about whole sequences (nsp, sop, dlm) share: two classes over the pooled vector."""

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from maskwright.core.errors import RecipeError
from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import HeadShape, LossInputs, LossTerm
from maskwright.core.types import Examples, Targets
from maskwright.pretext.objectives.base import Objective


class PairHead(nn.Module):
    """One linear layer over the pooled vector (bert: run_pretraining.py:288-305).

    Attributes:
        classifier: Linear H -> 2; the classes are the labels that the format gives.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.classifier = nn.Linear(shape.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """Turn pooled vectors (B, H) into class scores (B, 2)."""
        scores: Tensor = self.classifier(pooled)
        return scores


class PairObjective(Objective):
    """Say which of two labels a sequence has, be it a pair of texts or a dialogue; `needs` says what the label means.

    Targets are numbered by sequence; sequences without a label are not asked.
    """

    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "sequence"
    needs_pooler: ClassVar[bool] = True
    classes: ClassVar[int] = 2

    def targets(self, examples: Examples) -> Targets:
        """Return the labelled sequences and their labels (see `Objective.targets`)."""
        labels = examples.instances.pair_labels
        positions = np.flatnonzero(labels >= 0)
        return Targets(positions=positions, labels=labels[positions].astype(np.int64))

    def head(self, shape: HeadShape) -> PairHead:
        """Build the head (see `Objective.head`)."""
        return PairHead(shape)

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum the cross entropy over the labelled sequences (see `Objective.loss`).

        Raises:
            RecipeError: If the encoder has no pooler.
        """
        targets, pooled = inputs.targets, inputs.view.output.pooled
        if pooled is None:
            raise RecipeError(
                f"objective {self.kind!r} reads the pooled vector, which this encoder does not make",
                todo="Give it one, `--set encoder.pooler=true`",
            )
        scores = head(pooled[filled_up(targets.positions)])[: len(targets.labels)].float()
        total = nn.functional.cross_entropy(scores, targets.labels, reduction="sum")
        correct = (scores.detach().argmax(dim=1) == targets.labels).sum()
        return LossTerm(total=total, count=len(targets.labels), correct=correct)

    def flops(self, shape: HeadShape) -> float:
        """A dense layer of two classes (see `Objective.flops`)."""
        return 2.0 * shape.hidden_size * self.classes
