"""The interface of pretraining objectives: targets (NumPy), head (a small module) and loss.

Objectives are parts of recipes, so this package does not import PyTorch at the top of its modules; only `heads.py`,
the loss functions and the bodies of methods do.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from maskwright.core.spec import Spec
from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import Examples, HeadShape, IntArray, Targets

if TYPE_CHECKING:
    from torch import Tensor, nn


class Objective(Spec):
    """A pretraining objective: what is predicted where, and its loss. Subclasses are frozen values.

    Attributes:
        kind: The objective's name in recipes, metrics and weight tables.
        weight: Factor of this loss in the total.
        needs: Facts that other choices of the recipe must provide: "next_sentence_label", "order_label"
            (format), "contiguous_units" (masking), "generator", "teacher" (a second encoder), "mlm" (that objective's
            head).
        predicts: What a target position is: the offset of a selected "token" or of "every_token", or the number of
            a "sequence".
        on_generator: Whether this objective trains the generator, if a recipe has one, instead of the encoder.
        needs_pooler: Whether the loss uses `EncoderOutput.pooled`.
        uses_all_tokens: Whether the loss uses the hidden states of all tokens, whatever it predicts.
        classes: Number of labels of a sequence; 0 if tokens are predicted, whose labels are the vocabulary.
    """

    kind: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "token"
    on_generator: ClassVar[bool] = False
    needs_pooler: ClassVar[bool] = False
    uses_all_tokens: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    @abstractmethod
    def targets(self, examples: Examples) -> Targets:
        """Return the targets of a packed batch of examples. Positions ascend."""

    def head(self, shape: HeadShape) -> "nn.Module":
        """Build the head, with PyTorch's default initialization (the model's initializer runs over it)."""
        from torch import nn

        return nn.Identity()

    def num_parameters(self, shape: HeadShape) -> int:
        """Return the number of parameters of the head, without tied word embeddings."""
        return 0

    def prepare(self, head: "nn.Module", token_counts: IntArray | None) -> None:
        """Set the parts of a new head that depend on the corpus's count of each id (V,); None if unknown."""

    @abstractmethod
    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Compute the summed loss at the targets only.

        Without targets it is 0, with the same tallies and gradients (0) for the same parameters: ranks add them up.
        """

    @abstractmethod
    def flops(self, shape: HeadShape) -> float:
        """Return the forward FLOPs of one prediction (a multiply and an add are two), without a pooler."""

    def qkv_layer(self, num_layers: int, *, of_teacher: bool) -> int | None:
        """Return the layer whose `EncoderOutput.qkv` the loss uses, counted from 0; None for none."""
        return None

    def predictions_per_token(self, rate: float, length: float) -> float:
        """Return predictions per token of full sequences of some length, of which `rate` tokens are selected."""
        return {"token": rate, "every_token": 1.0, "sequence": 1 / length}[self.predicts]

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Turn the `LossTerm.tallies` of `count` predictions into shares for the metrics; none by default."""
        return {}


class VocabularyObjective(Objective):
    """An objective whose head has an output bias over the vocabulary.

    Attributes:
        initial_bias: "zero" (all papers), or the log unigram "frequencies" of the corpus, so that a short run need not
            learn them first.
    """

    initial_bias: Literal["zero", "frequencies"] = "zero"

    def prepare(self, head: "nn.Module", token_counts: IntArray | None) -> None:
        if self.initial_bias == "frequencies" and token_counts is not None:
            import torch

            # Add-one smoothing: an entry that the corpus lacks is rare, not impossible.
            logs = np.log(token_counts.astype(np.float64) + 1)
            with torch.no_grad():
                cast("Tensor", head.bias).copy_(torch.from_numpy(logs - logs.mean()))


class EveryTokenObjective(Objective):
    """An objective with a loss at all tokens, special ones too.

    Attributes:
        loss_at: Where the loss is computed: "everywhere", or only at the "selected" tokens.
    """

    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "every_token"
    uses_all_tokens: ClassVar[bool] = True
    loss_at: Literal["everywhere", "selected"] = "everywhere"

    def targets(self, examples: Examples) -> Targets:
        """Return the positions of the loss, labeled with the original tokens."""
        ids = examples.instances.ids
        positions = np.arange(len(ids)) if self.loss_at == "everywhere" else examples.selection.positions
        return Targets(positions=positions, labels=ids[positions].astype(np.int64))

    def predictions_per_token(self, rate: float, length: float) -> float:
        return 1.0 if self.loss_at == "everywhere" else rate


def by_encoder(objectives: Sequence[Objective], *, has_generator: bool) -> dict[str, tuple[Objective, ...]]:
    """Return the objectives on the "encoder" and, if there is one, those on the "generator", each in their order."""
    if not has_generator:
        return {"encoder": tuple(objectives)}
    return {
        name: tuple(each for each in objectives if each.on_generator == (name == "generator"))
        for name in ("encoder", "generator")
    }
