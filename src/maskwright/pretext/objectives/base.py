"""The interface of pretraining objectives: targets (NumPy), head (a small module) and loss.

Objectives are parts of recipes, so this package does not import PyTorch at the top of its modules; only `heads.py`,
the loss functions and the bodies of methods do.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from maskwright.core.spec import Spec
from maskwright.core.types import Examples, HeadShape, IntArray, Targets

if TYPE_CHECKING:
    from torch import nn

    from maskwright.core.tensors import LossInputs, LossTerm

InitialBias = Literal["zero", "frequencies"]
"""Initial output bias over the vocabulary: "zero" (all papers) or log unigram "frequencies" of the corpus, which spares
a short run the steps in which it learns nothing else."""


class Objective(Spec):
    """A pretraining objective: what is predicted where, and its loss. Subclasses are frozen values.

    Attributes:
        kind: The objective's name in recipes, metrics and weight tables.
        weight: Factor of this loss in the total.
        needs: Facts that other choices of the recipe must provide: "next_sentence_label", "order_label",
            "dialogue_label" (format), "contiguous_units" (masking), "generator", "teacher" (a second encoder), "mlm"
            (that objective's head).
        predicts: What a target position is: the offset of a selected "token" or of "every_token", or the number of
            a "sequence".
        on_generator: Whether this objective trains the generator, where a recipe has one, instead of the encoder.
        needs_pooler: Whether the loss reads `EncoderOutput.pooled`.
        needs_teacher_width: Whether a teacher's hidden states must be as wide as the encoder's.
        needs_teacher_scores: Whether the loss reads the logits of a teacher's masked-token head.
        classes: Number of labels of a sequence; 0 where tokens are predicted, whose labels are the vocabulary.
    """

    kind: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    predicts: ClassVar[Literal["token", "every_token", "sequence"]] = "token"
    on_generator: ClassVar[bool] = False
    needs_pooler: ClassVar[bool] = False
    needs_teacher_width: ClassVar[bool] = False
    needs_teacher_scores: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    @abstractmethod
    def targets(self, examples: Examples) -> Targets:
        """Return the targets of a flat batch of examples. Positions ascend."""

    @abstractmethod
    def head(self, shape: HeadShape) -> "nn.Module":
        """Build the head, with PyTorch's default initialization (the model's initializer runs over it).

        An objective without weights of its own returns `nn.Identity()`.
        """

    @abstractmethod
    def num_parameters(self, shape: HeadShape) -> int:
        """Return the number of parameters of the head; tied word embeddings are not counted."""

    def prepare(self, head: "nn.Module", token_counts: IntArray | None) -> None:
        """Set the parts of a freshly initialized head that depend on the corpus; nothing by default.

        Args:
            head: The result of `head`.
            token_counts: Shape (V,), the count of each id in the corpus; None where it is not known.
        """

    @abstractmethod
    def loss(self, head: "nn.Module", inputs: "LossInputs") -> "LossTerm":
        """Compute the summed loss at the targets only, of which there may be none."""

    @abstractmethod
    def flops(self, shape: HeadShape) -> float:
        """Return the forward FLOPs of one prediction (a multiply and an add are two); a pooler is not counted."""

    def predictions_per_token(self, rate: float, length: float) -> float:
        """Return the number of predictions per real token of full sequences.

        Args:
            rate: Share of tokens that the masking selects.
            length: Tokens of a sequence.
        """
        return {"token": rate, "every_token": 1.0, "sequence": 1 / length}[self.predicts]

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Turn the `LossTerm.tallies` of `count` predictions into shares for the metrics; none by default."""
        return {}
