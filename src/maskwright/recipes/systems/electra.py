"""ELECTRA (Clark, Luong, Le and Manning 2020): a generator replaces masked tokens, the encoder detects replacements.

File names refer to the released code (google-research/electra). Where it differs from the paper, the
paper is followed, and a comment gives the code's value for `--set`. One exception follows the code: the generator's
input at selected positions (`REPLACEMENT`). The models released under these names are the "++" ones, trained longer
and on more text than the paper's.
"""

from collections.abc import Iterator

from maskwright.pretext.formats import ContiguousHalves
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, ReplacedTokenDetection
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import LengthPhase, Training
from maskwright.recipes.recipe import Generator, MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Clark et al. 2020, arXiv:2003.10555"
NOT_PUBLISHED = "not published: ELECTRA at the size of a small BERT"

SMALL = Size(12, 256, 4)  # deeper and narrower than the small BERT: configure_pretraining.py, appendix A

ENCODER = bert.ENCODER.replace(
    hidden_activation="gelu",  # erf, model/modeling.py:298
    pooler=False,  # no pretraining objective uses the first token alone
    # DEVIATION: the original initializes the dense layers after the embeddings by TensorFlow's default (Glorot). Here
    # all matrices have one initialization, as in Hugging Face's classes.
    initializer_range=0.02,
)

FORMAT = ContiguousHalves(
    short_share=0.05,  # build_pretraining_dataset.py:34-114
    single_share=0.1,
)

MASKING = TokenMasking(
    rate=0.15,
    # DEVIATION: the original samples positions with replacement, so that 19 samples at length 128 give 17.7 positions
    # on average, and writes the mean of both ids at a position sampled twice (pretrain_helpers.py:56-213; its author
    # calls that a bug, google-research/electra issue 41). Here positions are distinct.
    rounding="half_even",  # tf.round
    rate_relative_to="all",  # includes [CLS] and [SEP], which are never selected
    candidates="ordinary",
    max_targets=None,  # the original has int((rate + .005) length) slots, which are never exceeded: 19, 79 and 130
)

REPLACEMENT = MaskRandomKeep(
    # As in the code: the paper masks all selected tokens, the code leaves 15 % of them unchanged in the generator's
    # input (pretrain_helpers.py). The generator's samples replace all of them. As in the paper:
    # --set "replacement={mask: 1, keep: 0}"
    mask=0.85,
    random=0.0,
    keep=0.15,
    per="token",
)

TRAINING_SMALL = Training(
    steps=1_000_000,  # the released Small++: 4 M
    batch_sequences=128,
    phases=(LengthPhase(share=1.0, max_length=128),),
    learning_rate=5e-4,
    warmup_steps=10_000,
    schedule="linear_product",  # model/optimization.py:28-60 multiplies warmup and decay
    clip_norm=1.0,
    optimizer=bert.TRAINING.optimizer,
)

TRAINING_BASE = TRAINING_SMALL.replace(
    steps=766_000,
    batch_sequences=256,
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=2e-4,
)

# The paper's second large model: --set training.steps=1750000
TRAINING_LARGE = TRAINING_BASE.replace(steps=400_000, batch_sequences=2048)

# In the paper, generators of a quarter to a half of the encoder's width are best (section 3.2). The released Small++
# has a generator of full width: --set generator.size=1
QUARTER, THIRD, HALF = Generator(size=0.25), Generator(size=1 / 3), Generator(size=0.5)

SYSTEMS: tuple[tuple[str, Size, int | None, Generator, float, Training, str], ...] = (
    # size    shape  E     generator rate  training        summary
    # Tiny and mini use the half: a quarter of tiny's 128 is less than one attention head of 64; mini's generator, 128
    # wide, has two heads.
    ("tiny",  TINY,  None, HALF,     0.15, TRAINING_SMALL, NOT_PUBLISHED),
    ("mini",  MINI,  128,  HALF,     0.15, TRAINING_SMALL, NOT_PUBLISHED),
    ("small", SMALL, 128,  QUARTER,  0.15, TRAINING_SMALL, "deep and narrow; trains on one GPU"),
    ("base",  BASE,  None, THIRD,    0.15, TRAINING_BASE,  "detects tokens replaced by a small generator"),
    ("large", LARGE, None, QUARTER,  0.25, TRAINING_LARGE, "detects tokens replaced by a small generator"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield ELECTRA at its three published sizes and at two small sizes of BERT."""
    for name, size, embedding_size, generator, rate, training, summary in SYSTEMS:
        yield Recipe(
            name=f"electra/{name}",
            summary=summary,
            paper=PAPER,
            family="electra",
            tokenizer=bert.UNCASED,
            format=FORMAT,
            masking=MASKING.replace(rate=rate),
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=(MaskedLanguageModeling(), ReplacedTokenDetection()),
            encoder=at_size(ENCODER, size).replace(embedding_size=embedding_size),
            generator=generator,
            training=training,
        )
