"""Replaced token detection: say of every token whether it is the original or a generator's."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import HeadShape, LossInputs, LossTerm, activation
from maskwright.core.types import Examples, Targets
from maskwright.pretext.objectives.base import Objective


class ReplacedTokenDetectionHead(nn.Module):
    """Dense H -> H, activation, dense H -> 1 (electra: run_pretraining.py, get_discriminator_output).

    DEVIATION: the original leaves `dense_prediction` to TensorFlow's default initialiser (Glorot, uniform). Here the
    recipe's initialiser draws every matrix, as in Hugging Face's class. It is one row of H numbers.

    Attributes:
        dense: Linear H -> H.
        dense_prediction: Linear H -> 1; positive scores mean "replaced".
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.dense_prediction = nn.Linear(shape.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into scores (M,), the log-odds that a token was replaced."""
        scores = self.dense_prediction(activation(self.activation, self.dense(hidden)))
        return cast(Tensor, scores.squeeze(-1))


class ReplacedTokenDetection(Objective):
    """Tell tokens that a generator put in (label 1) from original ones (label 0) (Clark et al. 2020, section 3.1).

    Every token is asked, special ones too (electra: run_pretraining.py:55-290, all that is not padding). What the
    generator drew is known only once it ran, so the targets made here are labelled 0 throughout and labelled anew by
    the model: 1 where the drawn token differs from the original; a token drawn right is original.

    Attributes:
        weight: 50 as in the paper (chosen among 1, 10, 20, 50 and 100), also where this objective is added to another
            recipe: a sigmoid's loss is small beside a softmax's.
        loss_at: Where the loss is computed: "everywhere", or only at the "selected" tokens ("ELECTRA 15 %", Table 5 of
            the paper, which shows that learning from all tokens is what helps most).
    """

    kind: Literal["rtd"] = "rtd"
    weight: Annotated[float, Field(gt=0)] = 50.0
    needs: ClassVar[frozenset[str]] = frozenset({"generator"})
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    loss_at: Literal["everywhere", "selected"] = "everywhere"

    def targets(self, examples: Examples) -> Targets:
        """Return all tokens, or the selected ones, labelled as original (see `Objective.targets`)."""
        everywhere = self.loss_at == "everywhere"
        positions = np.arange(len(examples.instances.ids)) if everywhere else examples.selection.positions
        return Targets(positions=positions, labels=np.zeros(len(positions), dtype=np.int64))

    def head(self, shape: HeadShape) -> ReplacedTokenDetectionHead:
        """Build the head (see `Objective.head`)."""
        return ReplacedTokenDetectionHead(shape)

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum the sigmoid cross entropy over the tokens asked (see `Objective.loss`).

        Tallies: how many tokens were "replaced", how many the head "flagged" as such, and how many of these
        rightly ("hit").
        """
        targets = inputs.targets
        scores = head(inputs.view.output.hidden[filled_up(targets.positions)])[: len(targets.labels)].float()
        total = nn.functional.binary_cross_entropy_with_logits(scores, targets.labels.float(), reduction="sum")
        is_replaced, is_flagged = targets.labels == 1, scores.detach() > 0
        return LossTerm(
            total=total,
            count=len(targets.labels),
            correct=(is_flagged == is_replaced).sum(),
            tallies={
                "replaced": is_replaced.sum(),
                "flagged": is_flagged.sum(),
                "hit": (is_flagged & is_replaced).sum(),
            },
        )

    def flops(self, shape: HeadShape) -> float:
        """Dense H x H, dense H x 1 (see `Objective.flops`)."""
        return 2.0 * (shape.hidden_size * shape.hidden_size + shape.hidden_size)

    def predictions_per_token(self, rate: float, length: float) -> float:
        """Return 1, or the share of selected tokens (see `Objective.predictions_per_token`)."""
        return 1.0 if self.loss_at == "everywhere" else rate

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the share of tokens replaced, and precision and recall at them.

        Precision is left out where nothing is flagged, recall where nothing is replaced: neither is then a number.
        """
        replaced, flagged, hit = (tallies.get(name, 0.0) for name in ("replaced", "flagged", "hit"))
        shares = {"replaced": replaced / count}
        if flagged:
            shares["precision"] = hit / flagged
        if replaced:
            shares["recall"] = hit / replaced
        return shares
