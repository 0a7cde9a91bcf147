"""RoBERTa-wwm-ext (Cui et al. 2020): whole words as in BERT-wwm, no next-sentence loss, full length throughout.

The authors call it RoBERTa-like: tokenizer, encoder and weight names are BERT's, masks are static, and sequences
are pairs. RoBERTa's classes cannot load it. Constants are from the README of ymcui/Chinese-BERT-wwm.
"""

from collections.abc import Iterator

from maskwright.data.words.spec import Words
from maskwright.pretext.masking import WholeWordMasking
from maskwright.pretext.objectives import MaskedLanguageModeling
from maskwright.recipes.optimization import LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Cui et al. 2020, arXiv:2004.13922"
NOT_PUBLISHED = "not published: RoBERTa-wwm at the size of a small BERT"

# Learning rate, warmup and the optimizer's constants are not in the README; they are BERT's.
TRAINING = bert.TRAINING.replace(
    steps=1_000_000,
    batch_sequences=384,
    phases=(LengthPhase(share=1.0, max_length=512),),
)
TRAINING_LARGE = TRAINING.replace(steps=2_000_000, batch_sequences=512)

# DEVIATION: all start from random weights unless `--init` names a model. The authors started base from Google's Chinese
# BERT, and the RBT models from the first layers of base or large, trained for another million steps.
SYSTEMS: tuple[tuple[str, Size, Training, str], ...] = (
    # size   shape                training        summary
    ("tiny",  TINY,               TRAINING,       NOT_PUBLISHED),
    ("mini",  MINI,               TRAINING,       NOT_PUBLISHED),
    ("small", SMALL,              TRAINING,       NOT_PUBLISHED),
    ("base",  BASE,               TRAINING,       "RoBERTa-wwm-ext"),
    ("large", LARGE,              TRAINING_LARGE, "RoBERTa-wwm-ext-large"),
    ("rbt3",  Size(3, 768, 12),   TRAINING,       "RBT3: three layers of base"),
    ("rbt4",  Size(4, 768, 12),   TRAINING,       "RBT4: four layers of base"),
    ("rbt6",  Size(6, 768, 12),   TRAINING,       "RBT6: six layers of base"),
    ("rbtl3", Size(3, 1024, 16),  TRAINING,       "RBTL3: three layers of large"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield the released shapes and the small sizes of BERT."""
    for name, size, training, summary in SYSTEMS:
        yield Recipe(
            name=f"roberta-wwm/{name}",
            summary=summary,
            paper=PAPER,
            family="bert",
            tokenizer=bert.CHINESE,
            # DEVIATION: the segmenter is jieba, which needs no model; the authors used LTP.
            words=Words(segmenter="rjieba", units="words"),
            # BERT's pairs, half of them random, though no objective uses the label; only real pairs:
            # --set format.second=next
            format=bert.FORMAT,
            masking=WholeWordMasking(rate=0.15, rounding="half_even", rate_relative_to="all"),
            replacement=bert.REPLACEMENT,
            masks=MaskSampling(copies=10),
            objectives=(MaskedLanguageModeling(),),
            # The released files contain a pooler that this training did not change.
            encoder=at_size(bert.ENCODER, size).replace(pooler=False),
            training=training,
        )
