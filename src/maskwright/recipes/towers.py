"""A second encoder beside the one that is trained: a generator that is trained with it, or a teacher that is not."""

from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.spec import Spec
from maskwright.model.config import EncoderConfig

Fraction = Annotated[float, Field(gt=0, le=1)]

SHARED_EMBEDDINGS = ("word_embeddings", "position_embeddings", "segment_embeddings", "embedding_norm")
"""Parts of a generator that are the encoder's own where embeddings are shared (electra: one variable scope)."""


class Generator(Spec):
    """A small masked language model whose samples stand where tokens were selected (Clark et al. 2020, section 3).

    Its sizes follow the encoder's (electra: run_pretraining.py:338-350): hidden size round(H x size), layers
    round(L x depth), heads max(1, hidden size // 64), feed-forward 4 x hidden size. Where that number of heads does not
    divide the hidden size, which no published one does, the next lower number that does is taken.

    Attributes:
        size: Hidden size as a fraction of the encoder's.
        depth: Layers as a fraction of the encoder's.
        shared: "embeddings": one table of words, positions and segments and one LayerNorm serve both encoders; "none":
            each has its own.
    """

    size: Fraction = 0.25
    depth: Fraction = 1.0
    shared: Literal["embeddings", "none"] = "embeddings"

    def config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the generator's shape beside an encoder's. It has no pooler."""
        hidden = max(1, round(encoder.hidden_size * self.size))
        return encoder.replace(
            hidden_size=hidden,
            num_layers=max(1, round(encoder.num_layers * self.depth)),
            num_heads=next(heads for heads in range(max(1, hidden // 64), 0, -1) if hidden % heads == 0),
            intermediate_size=4 * hidden,
            embedding_size=encoder.embedding_width,
            sharing="none",
            num_groups=1,
            blocks_per_group=1,
            attention_plan=None,
            ffn_plan=None,
            pooler=False,
        )


class Teacher(Spec):
    """A trained model whose answers are learnt from (Sanh et al. 2019).

    Attributes:
        model: A run's folder, a Hugging Face folder or a hub name.
        initialise: "layers": the student begins with the teacher's embeddings, its masked-token head and some of its
            layers, evenly spread (distillation: scripts/extract_distilbert.py takes 0, 2, 4, 7, 9 and 11 of 12);
            "none": it begins at random.
    """

    model: str = ""
    initialise: Literal["layers", "none"] = "layers"

    def config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the teacher's shape as published: the student's, twice as deep. The real one is said by its folder."""
        return encoder.replace(num_layers=2 * encoder.num_layers, attention_plan=None, ffn_plan=None)
