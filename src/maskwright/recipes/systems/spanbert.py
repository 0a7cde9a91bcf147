"""SpanBERT (Joshi, Chen, Liu, Weld, Zettlemoyer and Levy 2020): predicts spans from their boundaries.

File names refer to the released code (facebookresearch/SpanBERT, a copy of fairseq). Where it differs from the paper,
the paper is followed, and a comment gives the code's value for `--set`.
"""

from collections.abc import Iterator

from maskwright.pretext.formats import DocSentences
from maskwright.pretext.masking import SpanMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, SpanBoundaryObjective
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import AdamW, LengthPhase, Training
from maskwright.recipes.recipe import MaskSampling, Recipe
from maskwright.recipes.sizes import BASE, LARGE, MINI, SMALL, TINY, Size, at_size
from maskwright.recipes.systems import bert

PAPER = "Joshi et al. 2020, arXiv:1907.10529"
NOT_PUBLISHED = "not published: SpanBERT at the size of a small BERT"

ENCODER = bert.ENCODER.replace(  # one segment, but BERT's table of two
    hidden_activation="gelu",  # erf
    pooler=False,  # removed by --no-nsp
    initializer="normal",
)

# One contiguous segment of one document, never beyond its end (section 3.3), 510 tokens at most.
# DEVIATION: a sentence of more than 510 tokens is cut here. The original drops it, and with it the sentences
# collected before it if it is the last one of its document (no_nsp_span_bert_dataset.py:40-100).
FORMAT = DocSentences(separator_after="document")

MASKING = SpanMasking(
    rate=0.15,
    rounding="up",  # ceil(.15 n), masking.py:72-135
    rate_relative_to="ordinary",  # spans are sampled before [CLS] and [SEP] are added
    geometric_p=0.2,  # the code's default is .3, its README says .2
    longest_span=10,
)

REPLACEMENT = MaskRandomKeep(
    mask=0.8,
    random=0.1,
    keep=0.1,
    per="unit",  # --replacement-method span: one decision for a whole merged span
    random_from="corpus",  # masking.py:242-303 samples tokens of the training text
)

OBJECTIVES = (
    MaskedLanguageModeling(),
    SpanBoundaryObjective(max_tokens=20),  # the README's command says 15: --set objectives.sbo.max_tokens=15
)

TRAINING = Training(
    steps=2_400_000,
    batch_sequences=256,  # 32 GPUs x 4096 tokens
    phases=(LengthPhase(share=1.0, max_length=512),),
    learning_rate=1e-4,
    warmup_steps=10_000,
    schedule="linear",  # down to 1e-9 in the original
    clip_norm=1.0,
    optimizer=AdamW(
        betas=(0.9, 0.999),
        eps=1e-8,
        # The README's command says .01: --set training.optimizer.weight_decay=0.01
        weight_decay=0.1,
        decayed="all",  # fairseq decays LayerNorm and biases too
        bias_correction=True,
    ),
)

# The released base model was trained in larger batches (facebookresearch/SpanBERT issue 6).
TRAINING_BASE = TRAINING.replace(steps=300_000, batch_sequences=2048, learning_rate=5e-4)

SYSTEMS: tuple[tuple[str, Size, Training, str], ...] = (
    # size   shape  training       summary
    ("tiny",  TINY,  TRAINING,      NOT_PUBLISHED),
    ("mini",  MINI,  TRAINING,      NOT_PUBLISHED),
    ("small", SMALL, TRAINING,      NOT_PUBLISHED),
    ("base",  BASE,  TRAINING_BASE, "also predicts masked spans from their boundary tokens"),
    ("large", LARGE, TRAINING,      "also predicts masked spans from their boundary tokens"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield SpanBERT at its two published sizes and at the small sizes of BERT."""
    for name, size, training, summary in SYSTEMS:
        yield Recipe(
            name=f"spanbert/{name}",
            summary=summary,
            paper=PAPER,
            family="bert",
            tokenizer=bert.CASED,
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=OBJECTIVES,
            encoder=at_size(ENCODER, size),
            training=training,
        )
