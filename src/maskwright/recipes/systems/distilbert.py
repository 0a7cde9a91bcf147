"""DistilBERT (Sanh, Debut, Chaumond and Wolf 2019): a BERT with half of the layers, distilled from the full one.

File names refer to the released code (huggingface/transformers-research-projects, distillation/). Where it differs
from the paper, the paper is followed, and a comment gives the code's value for `--set`. All recipes need a teacher:
`--teacher DIR_OR_HUB_NAME`; tokenizer and vocabulary are the teacher's.
"""

from collections.abc import Iterator

from maskwright.core.types import FamilyName
from maskwright.data.tokenizers.spec import ByteBPE, TokenizerSpec
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import Cosine, MaskedLanguageModeling, SoftTargets
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe, Teacher
from maskwright.recipes.sizes import BASE, MEDIUM, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Sanh et al. 2019, arXiv:1910.01108"

UNCASED, CASED, MULTI_CASED = bert.UNCASED, bert.CASED, bert.MULTI_CASED
BYTES = ByteBPE(vocab_size=50265)

ENCODER = EncoderConfig(
    max_positions=512,
    type_vocab_size=0,  # no segments, section 3
    hidden_activation="gelu",  # erf
    layer_norm_eps=1e-12,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    pooler=False,
    initializer="normal",  # not truncated; only for layers that the teacher does not provide
    initializer_range=0.02,
)

# A student of RoBERTa inherits these.
ENCODER_OF_ROBERTA = ENCODER.replace(position_offset=2, type_vocab_size=1, layer_norm_eps=1e-5)

# DEVIATION: in the original each line of a file is a sequence; lines of more than 512 tokens are cut, those of fewer
# than 12 are dropped (lm_seqs_dataset.py). A corpus here has sentences and documents: a sequence has as many whole
# sentences of one document as fit.
FORMAT = DocSentences(separator_after="document")

MASKING = TokenMasking(
    rate=0.15,
    rounding="up",  # distiller.py:189-252, there for the whole batch: see TokenMasking
    rate_relative_to="all",
    candidates="ordinary",  # special tokens have the weight 0
    sampling="rare",
    smoothing=0.7,  # train.py:262-280
    max_targets=None,
)

OBJECTIVES = (
    # The weights of the released English model; train.py's defaults (0.5, 0, 0) are not a recipe.
    SoftTargets(weight=5.0, temperature=2.0, loss_at="everywhere"),
    MaskedLanguageModeling(weight=2.0),
    Cosine(weight=1.0),
)

TRAINING = Training(
    # Not published in steps. 3 epochs over the text of BERT, which 1M steps of 256 sequences pass 40 times (Devlin et
    # al. 2019, appendix A.2), are 3 / 40 x 256M / 4000 steps of full sequences.
    steps=4_800,
    batch_sequences=4_000,  # "up to 4k examples per batch", section 3; README.md: 5 a GPU, 50 accumulated
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=5e-4,
    warmup_steps=240,  # 5 %
    schedule="linear",
    clip_norm=5.0,
    optimizer=AdamW(
        betas=(0.9, 0.98),
        eps=1e-6,
        weight_decay=0.0,
        decayed="matrices",
        bias_correction=True,  # torch's AdamW, distiller.py:125-147
    ),
)

NOT_PUBLISHED = "not published: half the layers of a small BERT"
NOT_PUBLISHED_ROBERTA = "not published: half the layers of a small RoBERTa"

SYSTEMS: tuple[tuple[str, FamilyName, EncoderConfig, Size, TokenizerSpec, str], ...] = (
    # name                               family        encoder             twice   tokenizer    summary
    ("distilbert/tiny",                  "distilbert", ENCODER,            TINY,   UNCASED,     NOT_PUBLISHED),
    ("distilbert/mini",                  "distilbert", ENCODER,            MINI,   UNCASED,     NOT_PUBLISHED),
    ("distilbert/small",                 "distilbert", ENCODER,            SMALL,  UNCASED,     NOT_PUBLISHED),
    ("distilbert/medium",                "distilbert", ENCODER,            MEDIUM, UNCASED,     NOT_PUBLISHED),
    ("distilbert/base",                  "distilbert", ENCODER,            BASE,   UNCASED,     "English, lowercased"),
    ("distilbert/base-cased",            "distilbert", ENCODER,            BASE,   CASED,       "English, cased"),
    ("distilbert/base-multilingual-cased", "distilbert", ENCODER,          BASE,   MULTI_CASED, "104 languages, cased"),
    ("distilroberta/tiny",               "roberta",    ENCODER_OF_ROBERTA, TINY,   BYTES,       NOT_PUBLISHED_ROBERTA),
    ("distilroberta/mini",               "roberta",    ENCODER_OF_ROBERTA, MINI,   BYTES,       NOT_PUBLISHED_ROBERTA),
    ("distilroberta/small",              "roberta",    ENCODER_OF_ROBERTA, SMALL,  BYTES,       NOT_PUBLISHED_ROBERTA),
    ("distilroberta/medium",             "roberta",    ENCODER_OF_ROBERTA, MEDIUM, BYTES,       NOT_PUBLISHED_ROBERTA),
    ("distilroberta/base",               "roberta",    ENCODER_OF_ROBERTA, BASE,   BYTES,       "half of RoBERTa"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield students of BERT and RoBERTa with half the layers of the size in their name."""
    for name, family, encoder, whole, tokenizer, summary in SYSTEMS:
        yield Recipe(
            name=name,
            summary=summary,
            paper=PAPER,
            family=family,
            tokenizer=tokenizer,
            format=FORMAT,
            masking=MASKING,
            replacement=bert.REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=OBJECTIVES,
            encoder=at_size(encoder, Size(whole.num_layers // 2, whole.hidden_size, whole.num_heads)),
            teacher=Teacher(model="", initialize="layers"),
            training=TRAINING,
        )
