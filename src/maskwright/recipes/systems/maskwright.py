"""maskwright's own recipe for small budgets: ModernBERT's layers without windows, at BERT's shapes, 40 % masked.

Chosen by trials of one change at a time from BERT (LOG.md, "what helps per token"). They favor, against BERT,
rotary positions, pre-norm, gated feed-forward layers, a masking rate of 40 % and masked words alone; layers without
biases are as good with fewer parameters.
Constants for long training are not tried: they are BERT's.
"""

from collections.abc import Iterator

from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.objectives import MaskedLanguageModeling
from maskwright.recipes.optimization import AdamW
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, MEDIUM, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "layers: Warner et al. 2024, arXiv:2412.13663; constants: LOG.md, 2026-11-27"

ENCODER = EncoderConfig(
    max_positions=512,
    norm_placement="pre",
    first_attention_norm=False,
    norm_bias=False,
    dense_bias=False,
    positions="rotary",
    feed_forward="gated",
    type_vocab_size=0,
    hidden_activation="gelu",
    layer_norm_eps=1e-5,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    pooler=False,
    initializer_range=0.02,
)

SIZES: tuple[tuple[str, Size], ...] = (
    ("tiny", TINY), ("mini", MINI), ("small", SMALL), ("medium", MEDIUM), ("base", BASE),
)  # fmt: skip


def gated_size(hidden_size: int) -> int:
    """Return the width of a gated feed-forward layer with about the parameters of BERT's: 8/3 H, a multiple of 64."""
    return 64 * (8 * hidden_size // 3 // 64)


def recipes() -> Iterator[Recipe]:
    """Yield the recipe at the small sizes of BERT and at base."""
    for name, size in SIZES:
        shape = at_size(ENCODER, size)
        yield Recipe(
            name=f"maskwright/{name}",
            summary="not published: for small budgets; rotary positions, pre-norm, gates, 40 % masked",
            paper=PAPER,
            family="modernbert",
            tokenizer=bert.UNCASED,
            format=DocSentences(),
            masking=bert.MASKING.replace(rate=0.4),
            replacement=bert.REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=(MaskedLanguageModeling(),),
            encoder=shape.replace(intermediate_size=gated_size(size.hidden_size)),
            training=bert.TRAINING.replace(
                schedule="linear", optimizer=AdamW(betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
            ),
        )
