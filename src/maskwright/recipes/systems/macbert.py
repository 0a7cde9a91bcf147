"""MacBERT (Cui et al. 2020): masked words are replaced by similar words instead of [MASK].

No code was released; constants are from the paper (section 3 of the EMNLP version, extended in the journal version),
the README and the issues of ymcui/MacBERT. Constants that they do not state are BERT's and marked so.
"""

from collections.abc import Iterator

from maskwright.data.words.spec import Words
from maskwright.pretext.formats import SegmentPair
from maskwright.pretext.masking import NgramMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, SentenceOrderPrediction
from maskwright.pretext.replacement import SimilarWord
from maskwright.recipes.optimization import Lamb, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Cui et al. 2020, arXiv:2004.13922; journal version: IEEE/ACM TASLP 2021"
NOT_PUBLISHED = "not published: MacBERT at the size of a small BERT"

# The tokenizer still splits Chinese into characters; the segmenter determines which of them form a word.
#
# DEVIATION: the segmenter is jieba, which needs no model; the authors used LTP.
WORDS = Words(segmenter="rjieba")

FORMAT = SegmentPair(
    second="next_or_swapped",  # sentence order instead of next sentence
    short_share=0.1,  # not stated: BERT's
)

MASKING = NgramMasking(
    length_shares=(0.4, 0.3, 0.2, 0.1),  # of 1 to 4 words; n counts whole words (ymcui/MacBERT issue 15)
    rate=0.15,
    rounding="down",
    # Not stated: special tokens are included, as in BERT.
    rate_relative_to="all",
    candidates="ordinary",
    budget="words",  # 15 % of the words, of any length
    order="left_to_right",  # pointers from left to right, no overlap (ymcui/MacBERT issue 13)
    max_targets=None,
)

REPLACEMENT = SimilarWord(
    similar=0.8,
    random=0.1,
    keep=0.1,
    max_fallback_rate=0.1,  # ymcui/MacBERT issue 9
    # The authors used the toolkit Synonyms, whose vectors need a license key and a download. Here similar words are
    # learned from the corpus; with a file of vectors or synonyms: --set replacement.table.source=FILE
)

# The paper gives the large model's batch size and learning rate. Warmup, schedule and decay are not stated: BERT's.
# LAMB's constants are ALBERT's.
TRAINING_LARGE = Training(
    steps=2_000_000,
    batch_sequences=512,
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=1e-4,
    warmup_steps=10_000,
    schedule="linear_jump",
    clip_norm=1.0,
    optimizer=Lamb(betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01),
)
# The base model started from Google's Chinese BERT and was trained for 1 M steps: --init FOLDER with bert-base-chinese.
# Its batch size and learning rate are not stated: the large model's.
TRAINING_BASE = TRAINING_LARGE.replace(steps=1_000_000)

SYSTEMS: tuple[tuple[str, Size, Training, str], ...] = (
    # size    shape  training        summary
    ("tiny",  TINY,  TRAINING_BASE,  NOT_PUBLISHED),
    ("mini",  MINI,  TRAINING_BASE,  NOT_PUBLISHED),
    ("small", SMALL, TRAINING_BASE,  NOT_PUBLISHED),
    ("base",  BASE,  TRAINING_BASE,  "Chinese; similar words instead of [MASK]; starts from BERT"),
    ("large", LARGE, TRAINING_LARGE, "Chinese; similar words instead of [MASK]; from scratch"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield MacBERT at its two published sizes and at the small sizes of BERT."""
    for name, size, training, summary in SYSTEMS:
        yield Recipe(
            name=f"macbert/{name}",
            summary=summary,
            paper=PAPER,
            family="bert",
            tokenizer=bert.CHINESE,
            words=WORDS,
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=10),  # not stated: BERT's
            objectives=(MaskedLanguageModeling(), SentenceOrderPrediction()),
            encoder=at_size(bert.ENCODER, size),
            training=training,
        )
