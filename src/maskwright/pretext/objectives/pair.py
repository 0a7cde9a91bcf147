"""Objectives that classify whole sequences from the pooled vector: nsp and sop."""

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import Examples, HeadShape, Targets
from maskwright.pretext.objectives.base import Objective

if TYPE_CHECKING:
    from torch import nn


class PairObjective(Objective):
    """Predict which of two labels a pair of texts has.

    Targets are numbered by sequence; sequences without a label are not predicted.
    """

    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "sequence"
    needs_pooler: ClassVar[bool] = True
    classes: ClassVar[int] = 2

    def targets(self, examples: Examples) -> Targets:
        labels = examples.instances.pair_labels
        positions = np.flatnonzero(labels >= 0)
        return Targets(positions=positions, labels=labels[positions].astype(np.int64))

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import PairHead

        return PairHead(shape)

    def num_parameters(self, shape: HeadShape) -> int:
        """Dense H x 2 with bias."""
        return self.classes * (shape.hidden_size + 1)

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        from torch.nn.functional import cross_entropy

        targets, pooled = inputs.targets, inputs.encoded.output.pooled
        assert pooled is not None, "Recipe checks that there is a pooler"
        scores = head(pooled[targets.positions]).float()
        total = cross_entropy(scores, targets.labels, reduction="sum")
        correct = (scores.detach().argmax(dim=1) == targets.labels).sum()
        return LossTerm(total=total, correct=correct)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x 2."""
        return 2.0 * shape.hidden_size * self.classes


class NextSentencePrediction(PairObjective):
    """Classify the second text as the actual next one (label 0) or a random one (label 1) (Devlin et al. 2019, 3.1)."""

    kind: Literal["nsp"] = "nsp"
    needs: ClassVar[frozenset[str]] = frozenset({"next_sentence_label"})


class SentenceOrderPrediction(PairObjective):
    """Classify two texts as in order (label 0) or swapped (label 1) (Lan et al. 2019, section 3.1).

    Both texts are consecutive in one document, so that the topic does not reveal the label, as it does in
    next-sentence prediction.
    """

    kind: Literal["sop"] = "sop"
    needs: ClassVar[frozenset[str]] = frozenset({"order_label"})
