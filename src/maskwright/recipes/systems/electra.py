"""ELECTRA (Clark, Luong, Le and Manning 2020): a generator replaces masked tokens, the encoder detects replacements.

Names of files are those of the released code (google-research/electra). Where it differs from the paper, the
paper is followed and the code's value is given in a comment, to be set by `--set`; with one exception, what the
generator sees at the selected places (`REPLACEMENT`), where the code is followed. The models released under these
names are the "++" ones, trained longer on more text than the paper's.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import ContiguousHalves
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, ReplacedTokenDetection
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import Generator, MaskRefresh, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, TINY, Size, at_size

PAPER = "Clark et al. 2020, arXiv:2003.10555"
NOT_PUBLISHED = "not published: ELECTRA at the size of a small BERT"

SMALL = Size(12, 256, 4)  # deeper and narrower than the small BERT: configure_pretraining.py, appendix A

ENCODER = EncoderConfig(
    max_positions=512,
    type_vocab_size=2,
    hidden_activation="gelu",  # erf, model/modeling.py:298
    layer_norm_eps=1e-12,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    pooler=False,  # nothing is asked of the first token alone before fine-tuning
    initializer="truncated_normal",
    # DEVIATION: the original leaves the dense layers behind the embeddings to TensorFlow's default (Glorot). Here
    # every matrix is drawn alike, as in Hugging Face's classes.
    initializer_range=0.02,
)

FORMAT = ContiguousHalves(
    short_share=0.05,  # build_pretraining_dataset.py:34-114
    single_share=0.1,
    num_separators_between=1,
)

MASKING = TokenMasking(
    rate=0.15,
    # DEVIATION: the original draws positions with replacement, so that 19 draws at length 128 give 17.7 places on
    # average, and it writes the mean of both ids where a place is drawn twice (pretrain_helpers.py:56-213; its author
    # calls that a bug, issue 41). Here places are distinct.
    rounding="half_even",  # tf.round
    counted="all",  # [CLS] and [SEP] count, though they are never selected
    candidates="ordinary",
    max_targets=None,  # the original has int((rate + .005) length) slots, which never bind: 19, 79 and 130
)

REPLACEMENT = MaskRandomKeep(
    # Here the code is followed: the paper masks all, the code leaves 15 % as they are for the generator
    # (pretrain_helpers.py). What the generator draws is put in at all of them. The paper's words:
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
    schedule="linear_product",  # model/optimization.py:28-60 multiplies warm-up and decay
    clip_norm=1.0,
    optimizer=AdamW(
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        decayed="matrices",
        bias_correction=False,
    ),
)

TRAINING_BASE = TRAINING_SMALL.replace(
    steps=766_000,
    batch_sequences=256,
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=2e-4,
)

# The paper's second large model: --set training.steps=1750000
TRAINING_LARGE = TRAINING_BASE.replace(steps=400_000, batch_sequences=2048)

# The paper finds generators of a quarter to a half of the encoder's width best (section 3.2). The released Small++
# has one of full width: --set generator.size=1
QUARTER, THIRD, HALF = Generator(size=0.25), Generator(size=1 / 3), Generator(size=0.5)

SYSTEMS: tuple[tuple[str, Size, int | None, Generator, float, Training, str], ...] = (
    # size    shape  E     generator rate  training        summary
    # Of a quarter to a half, tiny and mini take the half: a quarter of tiny's 128 would be less than one attention head
    # of 64, and mini's generator, 128 wide, keeps two.
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
            tokenizer=WordPiece(vocab_size=30522, lowercase=True),
            format=FORMAT,
            masking=MASKING.replace(rate=rate),
            replacement=REPLACEMENT,
            masks=MaskRefresh(copies=None),
            objectives=(MaskedLanguageModeling(), ReplacedTokenDetection()),
            encoder=at_size(ENCODER, size).replace(embedding_size=embedding_size),
            generator=generator,
            training=training,
        )
