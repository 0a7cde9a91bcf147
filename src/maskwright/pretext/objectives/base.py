"""The door of the objectives room: targets (numpy), head (a small module) and loss in one file each."""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from maskwright.core.spec import Spec
from maskwright.core.tensors import EncoderOutput, HeadShape, LossTerm, TargetTensors
from maskwright.core.types import Examples, IntArray, Targets


class Objective(Spec):
    """What is asked back. Members are frozen values.

    Attributes:
        kind: The member's name in recipes, metrics and weight tables.
        weight: Factor of this loss in the total.
        needs: Facts that the format or the masking must provide ("next_sentence_label", "order_label",
            "contiguous_units").
        predicts: What a target position is: a "token" offset or a "sequence" number.
        needs_pooler: Whether the loss reads `EncoderOutput.pooled`.
        classes: How many labels a sequence can have; 0 where tokens are predicted, whose labels are the vocabulary.
    """

    kind: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    needs: ClassVar[frozenset[str]] = frozenset()
    predicts: ClassVar[Literal["token", "sequence"]] = "token"
    needs_pooler: ClassVar[bool] = False
    classes: ClassVar[int] = 0

    @abstractmethod
    def targets(self, examples: Examples) -> Targets:
        """Say what is predicted where, for a flat batch of examples."""

    @abstractmethod
    def head(self, shape: HeadShape) -> nn.Module:
        """Build the head, uninitialised beyond PyTorch's defaults (the model's initialiser runs over it)."""

    def prepare(self, head: nn.Module, token_counts: IntArray | None) -> None:
        """Set what the initialiser cannot know in a freshly initialised head; nothing by default.

        Args:
            head: What `head` built.
            token_counts: Shape (V,), how often each id stands in the corpus; None where it is not known.
        """

    @abstractmethod
    def loss(self, head: nn.Module, output: EncoderOutput, targets: TargetTensors, word_embeddings: Tensor) -> LossTerm:
        """Compute the summed loss at the targets only.

        Args:
            head: What `head` built.
            output: Hidden states (T, H) and pooled vectors (B, H).
            targets: Positions and labels; may be empty.
            word_embeddings: The tied output matrix. Shape (V, E).
        """
