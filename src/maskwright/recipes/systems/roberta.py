"""RoBERTa (Liu et al. 2019): BERT without sentence pairs, trained longer, on more text, in large batches.

File names refer to the released code (facebookresearch/fairseq). Where it differs from the paper, the
paper is followed, and a comment gives the code's value for `--set`.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import ByteBPE
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import FullSentences
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MEDIUM, MINI, SMALL, TINY, Size, at_size

PAPER = "Liu et al. 2019, arXiv:1907.11692"
NOT_PUBLISHED = "not published: RoBERTa at the size of a small BERT"

ENCODER = EncoderConfig(
    max_positions=512,
    position_offset=2,  # positions start after the padding id, 1: a table of 514 rows
    type_vocab_size=1,  # no segments; released weights have one constant row
    hidden_activation="gelu",  # erf
    layer_norm_eps=1e-5,  # modules/layer_norm.py:28
    hidden_dropout=0.1,
    attention_dropout=0.1,
    pooler=False,  # no pretraining objective uses the first token alone
    initializer="normal",  # not truncated, models/roberta/model.py:44-49
    initializer_range=0.02,
)

FORMAT = FullSentences(
    # The paper puts a separator between documents; the code ends every line of the corpus with one:
    # --set format.separator_after=sentence
    separator_after="document",
)

MASKING = TokenMasking(
    rate=0.15,
    rounding="random",  # 0.15 n + U[0, 1), data/mask_tokens_dataset.py:113-230
    rate_relative_to="all",
    candidates="all",  # <s> and </s> are selected and predicted like any other token
    max_targets=None,
)

REPLACEMENT = MaskRandomKeep(
    mask=0.8,
    random=0.1,
    keep=0.1,
    per="token",
    random_from="ordinary",  # all but the first four entries of the dictionary; <mask> is possible
)

# Table 9. The configuration released later, examples/roberta/config/pretraining/base.yaml, is smaller:
# --set "training={learning_rate: 5e-4, steps: 125000, batch_sequences: 2048, warmup_steps: 10000}"
TRAINING_BASE = Training(
    steps=500_000,
    batch_sequences=8192,
    phases=(LengthPhase(share=1.0, max_length=512),),  # full length from the start, section 3.1
    learning_rate=6e-4,
    warmup_steps=24_000,
    schedule="linear",
    clip_norm=0.0,  # off
    optimizer=AdamW(
        betas=(0.9, 0.98),  # section 3.1: 0.98 is more stable with large batches
        eps=1e-6,
        weight_decay=0.01,
        decayed="all",  # optim/adam.py:205-240 decays LayerNorm and biases too
        bias_correction=True,
    ),
)

TRAINING_LARGE = TRAINING_BASE.replace(learning_rate=4e-4, warmup_steps=30_000)

# Small models do not need batches of 8192 sequences: the first row of Table 3, with BERT's warmup.
TRAINING_SMALL = TRAINING_BASE.replace(steps=1_000_000, batch_sequences=256, learning_rate=1e-4, warmup_steps=10_000)

SYSTEMS: tuple[tuple[str, Size, Training, str], ...] = (
    # size    shape   training        summary
    ("tiny",   TINY,   TRAINING_SMALL, NOT_PUBLISHED),
    ("mini",   MINI,   TRAINING_SMALL, NOT_PUBLISHED),
    ("small",  SMALL,  TRAINING_SMALL, NOT_PUBLISHED),
    ("medium", MEDIUM, TRAINING_SMALL, NOT_PUBLISHED),
    ("base",   BASE,   TRAINING_BASE,  "no sentence pairs, dynamic masking, large batches"),
    ("large",  LARGE,  TRAINING_LARGE, "no sentence pairs, dynamic masking, large batches"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield RoBERTa at its two published sizes and at the small sizes of BERT."""
    for name, size, training, summary in SYSTEMS:
        yield Recipe(
            name=f"roberta/{name}",
            summary=summary,
            paper=PAPER,
            family="roberta",
            tokenizer=ByteBPE(vocab_size=50265),
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=(MaskedLanguageModeling(),),
            encoder=at_size(ENCODER, size),
            training=training,
        )
