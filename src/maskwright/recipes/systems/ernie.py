"""ERNIE 1.0 (Sun et al. 2019, Baidu): masks characters first, then phrases, then named entities.

File names refer to the released code (PaddlePaddle/ERNIE, directory ERNIE, July 2019). Its input text has the units
already marked, and it does not distinguish stages; how the units were found was not released.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.data.words.spec import Words
from maskwright.pretext.masking import KnowledgeMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, NextSentencePrediction
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Sun et al. 2019, arXiv:1904.09223"
NOT_PUBLISHED = "not published: ERNIE at the size of a small BERT"

# The released vocabulary has 17964 entries in a table of 18000 rows; a vocabulary trained here uses all rows.
TOKENIZER = WordPiece(vocab_size=18000, lowercase=True)

# Basic units are characters, phrases the segmenter's words of several characters, entities its named entities.
WORDS = Words(segmenter="rjieba", units="characters", phrases=("segmenter",), entities=("tags",))

ENCODER = bert.ENCODER.replace(
    max_positions=513,  # config/ernie_config.json
    hidden_activation="relu",
    layer_norm_eps=1e-5,  # Paddle's default
)

# Training text was released as finished pairs (label 1 for "is next" there, 0 here, as in BERT), not the code that made
# them; BERT's format is used. (The code can make negatives of neighbors in a shuffled buffer, off by default:
# reader/pretraining.py:136-235.)
FORMAT = bert.FORMAT

# DEVIATION: the paper also trains on dialogues, some of them fake (section 3.3). The released code does not contain
# this dialogue language model; it is not implemented.
OBJECTIVES = (MaskedLanguageModeling(), NextSentencePrediction())

MASKING = KnowledgeMasking(
    rate=0.15,  # of the units, each independently: batching.py:25-117
    order="staged",  # section 3.2; the length of the stages is not published, equal ones are assumed
    basic=1 / 3,
    phrase=1 / 3,
    entity=1 / 3,
)

REPLACEMENT = MaskRandomKeep(
    mask=0.8,  # batching.py:25-117: .03 < u <= .15
    random=0.1,  # .015 < u <= .03
    keep=0.1,
    per="token",  # each token of a unit independently
    # DEVIATION: batching.py samples from 1 on; here the padding entry, number 0, can occur too, once in 18000.
    random_from="vocabulary",
)

TRAINING = Training(
    steps=1_000_000,
    batch_sequences=128,  # 8 GPUs x 8192 tokens, at full length
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=1e-4,
    warmup_steps=5_000,
    schedule="linear_jump",  # optimization.py:25-140, as BERT's
    clip_norm=1.0,
    optimizer=AdamW(
        betas=(0.9, 0.999),
        eps=1e-8,  # Paddle's default
        weight_decay=0.01,
        decayed="matrices",
        bias_correction=True,
    ),
)

SYSTEMS: tuple[tuple[str, Size, str], ...] = (
    # size   shape  summary
    ("tiny",  TINY,  NOT_PUBLISHED),
    ("mini",  MINI,  NOT_PUBLISHED),
    ("small", SMALL, NOT_PUBLISHED),
    ("base",  BASE,  "Chinese; masks characters, phrases, then entities"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield ERNIE at its published size and at the small sizes of BERT."""
    for name, size, summary in SYSTEMS:
        yield Recipe(
            name=f"ernie/{name}",
            summary=summary,
            paper=PAPER,
            family="ernie",
            tokenizer=TOKENIZER,
            words=WORDS,
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=OBJECTIVES,
            encoder=at_size(ENCODER, size),
            training=TRAINING,
        )
