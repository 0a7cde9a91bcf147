"""PMI-masking (Levine et al. 2021): masks collocations (words of high pointwise mutual information) as one unit."""

from collections.abc import Iterator

from maskwright.data.words.spec import Words
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.masking import PMIMasking
from maskwright.pretext.objectives import MaskedLanguageModeling
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Levine et al. 2021, arXiv:2010.01825"
NOT_PUBLISHED = "not published: PMI-masking at the size of a small BERT"

MASKING = PMIMasking(rate=0.15, rounding="half_even", rate_relative_to="all")

# Not verified: the paper, which was not available for this, is said to use BERT's constants with 256 sequences of 512 a
# step. The number of collocations is not the paper's: they are found in the corpus (data/words/collocations.py).
TRAINING = bert.TRAINING.replace(phases=(LengthPhase(share=1.0, max_length=512),))

SYSTEMS: tuple[tuple[str, Size, str], ...] = (
    # size   shape  summary
    ("tiny",  TINY,  NOT_PUBLISHED),
    ("mini",  MINI,  NOT_PUBLISHED),
    ("small", SMALL, NOT_PUBLISHED),
    ("base",  BASE,  "masks collocations and whole words; no sentence pairs"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield PMI-masking at its published size and at the small sizes of BERT."""
    for name, size, summary in SYSTEMS:
        yield Recipe(
            name=f"pmi/{name}",
            summary=summary,
            paper=PAPER,
            family="bert",
            tokenizer=bert.UNCASED,
            words=Words(phrases=("collocations",)),
            format=DocSentences(separator_after="document"),
            masking=MASKING,
            replacement=bert.REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=(MaskedLanguageModeling(),),
            encoder=at_size(bert.ENCODER, size).replace(pooler=False),
            training=TRAINING,
        )
