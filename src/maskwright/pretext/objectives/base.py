"""The door of the objectives room: targets (numpy), head (a small module) and loss in one file each."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from maskwright.core.spec import Spec
from maskwright.core.tensors import HeadShape, LossInputs, LossTerm
from maskwright.core.types import Examples, IntArray, Targets


class Objective(Spec):
    """What is asked back. Members are frozen values.

    Attributes:
        kind: The member's name in recipes, metrics and weight tables.
        weight: Factor of this loss in the total.
        needs: Facts that other choices of the recipe must provide: "next_sentence_label", "order_label",
            "dialogue_label" (format), "contiguous_units" (masking), "generator", "teacher" (a second encoder), "mlm"
            (that objective's head).
        predicts: What a target position is: the offset of a selected "token" or of "every_token", or the number of
            a "sequence".
        on_generator: Whether this objective trains the generator, where a recipe has one, instead of the encoder.
        needs_pooler: Whether the loss reads `EncoderOutput.pooled`.
        needs_teacher_width: Whether a teacher's hidden states must be as wide as the encoder's.
        needs_teacher_scores: Whether the loss reads the scores of a teacher's masked-token head.
        classes: How many labels a sequence can have; 0 where tokens are predicted, whose labels are the vocabulary.
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
        """Say what is predicted where, for a flat batch of examples. Positions ascend."""

    @abstractmethod
    def head(self, shape: HeadShape) -> nn.Module:
        """Build the head, uninitialised beyond PyTorch's defaults (the model's initialiser runs over it).

        An objective without weights of its own returns `nn.Identity()`.
        """

    def prepare(self, head: nn.Module, token_counts: IntArray | None) -> None:
        """Set what the initialiser cannot know in a freshly initialised head; nothing by default.

        Args:
            head: What `head` built.
            token_counts: Shape (V,), how often each id stands in the corpus; None where it is not known.
        """

    @abstractmethod
    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Compute the summed loss at the targets only.

        Args:
            head: What `head` built.
            inputs: What the encoder (and a teacher) made of the batch, and the targets, which may be none.
        """

    @abstractmethod
    def flops(self, shape: HeadShape) -> float:
        """Return the forward operations of one prediction (a multiply and an add are two); a pooler is not counted."""

    def predictions_per_token(self, rate: float, length: float) -> float:
        """Return how many predictions are made per real token of full sequences.

        Args:
            rate: Share of tokens that the masking selects.
            length: Tokens of a sequence.
        """
        return {"token": rate, "every_token": 1.0, "sequence": 1 / length}[self.predicts]

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Turn the `LossTerm.tallies` of `count` predictions into shares for the metrics; none by default."""
        return {}
