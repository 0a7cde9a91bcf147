"""ALBERT (Lan et al. 2019): weights shared across layers, factorized embeddings, sentence-order prediction.

File names refer to the released code (google-research/albert). Where it differs from the paper, the
paper is followed, and a comment gives the code's value for `--set`.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import Unigram, WordPiece
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import SegmentPair
from maskwright.pretext.masking import NgramMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, SentenceOrderPrediction
from maskwright.recipes.optimization import Lamb, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, SMALL, TINY, XLARGE, XXLARGE, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Lan et al. 2019, arXiv:1909.11942"
NOT_PUBLISHED = "not published: ALBERT at the size of a small BERT"

ENGLISH = Unigram(vocab_size=30000, lowercase=True, character_coverage=0.99995)  # README.md:305-320
CHINESE = bert.CHINESE

ENCODER = bert.ENCODER.replace(
    # Section 3.1. Equal to the hidden size of "tiny", which therefore has no dense layer after its embeddings.
    embedding_size=128,
    # Section 3.1: one block for all layers. Tables 3 and 4 compare: --set encoder.sharing=none, attention or ffn.
    # Groups of layers (modeling.py: num_hidden_groups): e.g. --set encoder.num_groups=4
    sharing="all",
)
# The paper's largest model was trained without dropout in the end (section 4.8), as were all models of version 2.
WITHOUT_DROPOUT = ENCODER.replace(hidden_dropout=0.0, attention_dropout=0.0)

FORMAT = SegmentPair(
    # A chunk of one sentence has no order and gets no label. The code pairs it with a random text, labeled as swapped
    # (create_pretraining_data.py:314-337): --set format.second=next_swapped_or_random
    second="next_or_swapped",
    short_share=0.1,  # section 4.1; sampled once per document
)

MASKING = NgramMasking(
    length_shares=(6 / 11, 3 / 11, 2 / 11),  # section 4.1: 1 to 3 words, in proportion to 1/n
    rate=0.15,
    rounding="half_even",  # create_pretraining_data.py:393-600
    rate_relative_to="all",
    candidates="ordinary",
    budget="tokens",
    order="random",
    # create_pretraining_data.py has a default limit of 20, which at length 512 is 3.9 % of the tokens; its authors
    # trained with it (google-research/albert issue 51). The paper has no limit. The released value:
    # --set masking.max_targets=20
    max_targets=None,
)

# Sections 4.1 and 4.2.
TRAINING = Training(
    steps=125_000,
    batch_sequences=4096,
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=0.00176,
    warmup_steps=3125,
    schedule="linear_jump",  # optimization.py counts the decay from step 0, as BERT's does
    clip_norm=1.0,  # optimization.py
    optimizer=Lamb(betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01),  # lamb_optimizer.py:40-122
)
# README.md:29; it states no other batch size or warmup. The text was larger too.
TRAINING_V2 = TRAINING.replace(steps=3_000_000)
TRAINING_V2_BASE = TRAINING.replace(steps=10_000_000)
# Small models do not need batches of 4096 sequences: BERT's batch size, as many sequences in total as ALBERT, and a
# learning rate proportional to the square root of the batch size (You et al. 2020): 0.00176 / 4.
TRAINING_SMALL = TRAINING.replace(steps=2_000_000, batch_sequences=256, learning_rate=0.00044, warmup_steps=50_000)

Row = tuple[str, Size, EncoderConfig, Unigram | WordPiece, Training, str]
SYSTEMS: tuple[Row, ...] = (
    # size           shape    encoder          tokenizer training          summary
    ("tiny",         TINY,    ENCODER,         ENGLISH,  TRAINING_SMALL,   NOT_PUBLISHED),
    ("mini",         MINI,    ENCODER,         ENGLISH,  TRAINING_SMALL,   NOT_PUBLISHED),
    ("small",        SMALL,   ENCODER,         ENGLISH,  TRAINING_SMALL,   NOT_PUBLISHED),
    ("base",         BASE,    ENCODER,         ENGLISH,  TRAINING,         "English, 12 M parameters"),
    ("large",        LARGE,   ENCODER,         ENGLISH,  TRAINING,         "English, 18 M parameters"),
    ("xlarge",       XLARGE,  ENCODER,         ENGLISH,  TRAINING,         "English, 59 M parameters"),
    ("xxlarge",      XXLARGE, WITHOUT_DROPOUT, ENGLISH,  TRAINING,         "English, 223 M parameters"),
    ("base-v2",      BASE,    WITHOUT_DROPOUT, ENGLISH,  TRAINING_V2_BASE, "version 2: no dropout, longer training"),
    ("large-v2",     LARGE,   WITHOUT_DROPOUT, ENGLISH,  TRAINING_V2,      "version 2: no dropout, longer training"),
    ("xlarge-v2",    XLARGE,  WITHOUT_DROPOUT, ENGLISH,  TRAINING_V2,      "version 2: no dropout, longer training"),
    ("xxlarge-v2",   XXLARGE, WITHOUT_DROPOUT, ENGLISH,  TRAINING_V2,      "version 2: longer training"),
    ("base-chinese", BASE,    ENCODER,         CHINESE,  TRAINING,         "Chinese, character-based"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield ALBERT at its four published sizes, both versions, in Chinese, and at the small sizes of BERT."""
    for name, size, encoder, tokenizer, training, summary in SYSTEMS:
        yield Recipe(
            name=f"albert/{name}",
            summary=summary,
            paper=PAPER,
            family="albert",
            tokenizer=tokenizer,
            format=FORMAT,
            masking=MASKING,
            replacement=bert.REPLACEMENT,
            # create_pretraining_data.py: dupe_factor 40 (10 in the first release); the paper does not say.
            masks=MaskSampling(copies=40),
            objectives=(MaskedLanguageModeling(), SentenceOrderPrediction()),
            encoder=at_size(encoder, size),
            training=training,
        )
