"""BERT (Devlin, Chang, Lee and Toutanova 2019): bidirectional masked language modeling and next-sentence prediction.

File names refer to the released code (google-research/bert). Where it differs from the paper, the
paper is followed, and a comment gives the code's value for `--set`.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import WordPiece
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import SegmentPair
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, NextSentencePrediction
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MEDIUM, MINI, SMALL, TINY, Size, at_size

PAPER = "Devlin et al. 2019, arXiv:1810.04805"
SMALL_PAPER = "Turc et al. 2019, arXiv:1908.08962"
WWM_PAPER = "Cui et al. 2019, arXiv:1906.08101"

UNCASED = WordPiece(vocab_size=30522, lowercase=True)
CASED = WordPiece(vocab_size=28996, lowercase=False)
CHINESE = WordPiece(vocab_size=21128, lowercase=True)  # single characters; Latin text lowercased
MULTI_CASED = WordPiece(vocab_size=119547, lowercase=False)
MULTI_UNCASED = WordPiece(vocab_size=105879, lowercase=True)

SYSTEMS: tuple[tuple[str, Size, WordPiece, str, str], ...] = (
    # size                        shape   tokenizer      paper        summary
    ("tiny",                      TINY,   UNCASED,       SMALL_PAPER, "English, lowercased; smallest published"),
    ("mini",                      MINI,   UNCASED,       SMALL_PAPER, "English, lowercased; small, narrow"),
    ("small",                     SMALL,  UNCASED,       SMALL_PAPER, "English, lowercased; small, shallow"),
    ("medium",                    MEDIUM, UNCASED,       SMALL_PAPER, "English, lowercased; small, 8 layers"),
    ("base",                      BASE,   UNCASED,       PAPER,       "English, lowercased"),
    ("large",                     LARGE,  UNCASED,       PAPER,       "English, lowercased"),
    ("base-cased",                BASE,   CASED,         PAPER,       "English, cased"),
    ("large-cased",               LARGE,  CASED,         PAPER,       "English, cased"),
    ("base-chinese",              BASE,   CHINESE,       PAPER,       "Chinese, character-based"),
    ("large-chinese",             LARGE,  CHINESE,       WWM_PAPER,   "Chinese; published with whole-word masking"),
    ("base-multilingual-cased",   BASE,   MULTI_CASED,   PAPER,       "104 languages, cased"),
    ("base-multilingual-uncased", BASE,   MULTI_UNCASED, PAPER,       "102 languages, lowercased; older"),
)  # fmt: skip

ENCODER = EncoderConfig(
    max_positions=512,
    type_vocab_size=2,  # modeling.py:44 says 16, every released configuration says 2
    hidden_activation="gelu_tanh",  # modeling.py:264-277
    layer_norm_eps=1e-12,  # default of the layer norm in modeling.py
    hidden_dropout=0.1,
    attention_dropout=0.1,
    pooler=True,
    initializer="truncated_normal",
    initializer_range=0.02,
)

FORMAT = SegmentPair(
    second="next_or_random",
    short_share=0.1,  # create_pretraining_data.py:219-240: sampled once per document
)

MASKING = TokenMasking(
    rate=0.15,
    rounding="half_even",  # Python's round, create_pretraining_data.py:342-415
    rate_relative_to="all",  # includes [CLS] and [SEP], which are never selected
    candidates="ordinary",
    # create_pretraining_data.py has a default limit of 20; the README recommends 20 at length 128 and 77 at 512, which
    # are never reached. The released default: --set masking.max_targets=20
    max_targets=None,
)

REPLACEMENT = MaskRandomKeep(
    mask=0.8,
    random=0.1,
    keep=0.1,
    per="token",
    random_from="vocabulary",  # including special and unused entries
)

TRAINING = Training(
    steps=1_000_000,
    batch_sequences=256,
    phases=(LengthPhase(share=0.9, max_length=128), LengthPhase(share=0.1, max_length=512)),  # appendix A.2
    learning_rate=1e-4,
    warmup_steps=10_000,
    schedule="linear_jump",  # optimization.py:25-57 counts the decay from step 0
    clip_norm=1.0,  # optimization.py:70
    optimizer=AdamW(
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        decayed="matrices",  # embeddings are decayed, LayerNorm and biases are not
        bias_correction=False,  # optimization.py:59-174; the paper says only "Adam"
    ),
)


def recipes() -> Iterator[Recipe]:
    """Yield BERT at each published size and language."""
    for name, size, tokenizer, paper, summary in SYSTEMS:
        yield Recipe(
            name=f"bert/{name}",
            summary=summary,
            paper=paper,
            family="bert",
            tokenizer=tokenizer,
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=10),  # dupe_factor: lengths, splits, labels and masks are sampled ten times
            objectives=(MaskedLanguageModeling(), NextSentencePrediction()),
            encoder=at_size(ENCODER, size),
            training=TRAINING,
        )
