"""The models that are measured, and how much of each a timed pass computes."""

from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.settings import Settings
from maskwright.core.errors import MaskwrightError, unknown_name
from maskwright.core.types import FamilyName
from maskwright.model.config import EncoderConfig

HEAD_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model and its workload.

    Attributes:
        name: As tables call it.
        family: Whose transformers class the peer is.
        layers, hidden: Depth and width; heads are 64 wide, the feed-forward part is four times as wide.
        vocabulary: Entries.
        embedding: Width of the embeddings; None for `hidden`.
        sharing: Which blocks serve several layers.
        activation: transformers' own default for the family: erf for BERT, tanh for ALBERT.
        documents: Texts of natural length in a step.
        blocks: Full sequences in a step, where text is cut into blocks.
        steps: Steps of a timed pass.
        rounds: Timed rounds.
    """

    name: str
    family: FamilyName = "bert"
    layers: int
    hidden: int
    vocabulary: int
    embedding: int | None = None
    sharing: Literal["none", "all"] = "none"
    activation: Literal["gelu", "gelu_tanh"] = "gelu"
    documents: int
    blocks: int
    steps: int
    rounds: int

    def config(self, dropout: float = 0.0, *, length: int = 128) -> EncoderConfig:
        """Return the encoder's configuration.

        Args:
            dropout: Share of hidden values and of attention probabilities dropped.
            length: Longest sequence.
        """
        return EncoderConfig(
            hidden_size=self.hidden,
            num_layers=self.layers,
            num_heads=max(1, self.hidden // HEAD_SIZE),
            intermediate_size=4 * self.hidden,
            embedding_size=self.embedding,
            sharing=self.sharing,
            hidden_activation=self.activation,
            hidden_dropout=dropout,
            attention_dropout=dropout,
            max_positions=max(512, length),
            pooler=False,
        )

    def told(self) -> str:
        """Say what it is: "base (12 x 768, 30,522 entries)"."""
        return f"{self.name} ({self.layers} x {self.hidden}, {self.vocabulary:,} entries)"


# The vocabularies grow with the models, as fitted runs have them; base and ALBERT have the published ones.
TINY = Shape(name="tiny", layers=4, hidden=256, vocabulary=8192, documents=32, blocks=16, steps=4, rounds=11)
SMALL = Shape(name="small", layers=12, hidden=256, vocabulary=16384, documents=32, blocks=16, steps=2, rounds=9)
BASE = Shape(name="base", layers=12, hidden=768, vocabulary=30522, documents=16, blocks=8, steps=2, rounds=5)
ALBERT = Shape(
    name="albert",
    family="albert",
    layers=12,
    hidden=768,
    vocabulary=30000,
    embedding=128,
    sharing="all",
    activation="gelu_tanh",
    documents=16,
    blocks=8,
    steps=2,
    rounds=5,
)
SHAPES = (TINY, SMALL, BASE, ALBERT)


def chosen(settings: Settings, offered: tuple[Shape, ...] = SHAPES) -> list[Shape]:
    """Return the shapes that a row measures, as the settings want them.

    Args:
        settings: Names, vocabulary, tiny settings.
        offered: What the row can measure.

    Raises:
        MaskwrightError: If a size is asked for that no row has.
    """
    known = {shape.name for shape in SHAPES}
    for name in settings.sizes:
        if name not in known:
            problem, allowed, todo = unknown_name("size", name, known)
            raise MaskwrightError(problem, allowed=allowed, todo=todo)
    wanted = [shape for shape in offered if not settings.sizes or shape.name in settings.sizes]
    if settings.quick and not settings.sizes:  # Tiny settings make all sizes of a family the same.
        wanted = [shape for shape in wanted if shape in (offered[0], ALBERT)]
    return [fitted(shape, settings) for shape in wanted]


def fitted(shape: Shape, settings: Settings) -> Shape:
    """Return a shape with the vocabulary asked for; with tiny settings, a tiny one of the same family."""
    if settings.quick:
        shape = replace(
            shape,
            layers=2,
            hidden=128,
            embedding=shape.embedding and 64,
            vocabulary=500,
            documents=6,
            blocks=3,
            steps=2,
        )
    return replace(shape, vocabulary=settings.vocabulary or shape.vocabulary)
