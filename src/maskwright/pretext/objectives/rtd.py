"""Replaced token detection: classify every token as original or replaced by the generator."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import HeadShape
from maskwright.pretext.objectives.base import EveryTokenObjective

if TYPE_CHECKING:
    from torch import nn


class ReplacedTokenDetection(EveryTokenObjective):
    """Classify tokens as sampled by a generator (label 1) or original (label 0) (Clark et al. 2020, section 2).

    Every token is predicted, special ones too (electra: run_pretraining.py:55-290, all that is not padding). A token
    that is sampled correctly is original.

    Attributes:
        weight: 50 as in the paper (chosen among 1, 10, 20, 50 and 100): a sigmoid's loss is small beside a softmax's.
        loss_at: "selected" is "ELECTRA 15 %" (Table 5 of the paper: learning from all tokens helps most).
    """

    kind: Literal["rtd"] = "rtd"
    weight: Annotated[float, Field(gt=0)] = 50.0
    needs: ClassVar[frozenset[str]] = frozenset({"generator"})

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import ReplacedTokenDetectionHead

        return ReplacedTokenDetectionHead(shape)

    def num_parameters(self, shape: HeadShape) -> int:
        """Dense H x H and dense H x 1, with biases."""
        return (shape.hidden_size + 1) * (shape.hidden_size + 1)

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum the sigmoid cross entropy over the targets.

        Tallies: the number of "replaced" tokens, the number "flagged" by the head, and the number of these that are
        replaced ("hit").
        """
        from torch.nn.functional import binary_cross_entropy_with_logits

        targets = inputs.targets
        scores = head(inputs.encoded.output.hidden[targets.positions]).float()
        is_replaced, is_flagged = inputs.encoded.ids[targets.positions] != targets.labels, scores.detach() > 0
        total = binary_cross_entropy_with_logits(scores, is_replaced.float(), reduction="sum")
        return LossTerm(
            total=total,
            correct=(is_flagged == is_replaced).sum(),
            tallies={
                "replaced": is_replaced.sum(),
                "flagged": is_flagged.sum(),
                "hit": (is_flagged & is_replaced).sum(),
            },
        )

    def flops(self, shape: HeadShape) -> float:
        """Dense H x H, dense H x 1."""
        return 2.0 * (shape.hidden_size * shape.hidden_size + shape.hidden_size)

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the share of replaced tokens, and precision and recall on them, each only where it is defined."""
        replaced, flagged, hit = (tallies.get(name, 0.0) for name in ("replaced", "flagged", "hit"))
        shares = {"replaced": replaced / count}
        if flagged:
            shares["precision"] = hit / flagged
        if replaced:
            shares["recall"] = hit / replaced
        return shares
