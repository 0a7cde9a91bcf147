"""ModernBERT (Warner et al. 2024) and, at small sizes, Ettin (Weller et al. 2025): BERT with the parts of newer models.

File names refer to the released code (AnswerDotAI/ModernBERT, yamls and src; JHU-CLSP/ettin-encoder-vs-decoder).

DEVIATION: the originals train 250 billion tokens more at length 8,192, with an eighth of the sequences per step, before
the learning rate falls in the last 50 billion; here all steps are at length 1,024, and the batch size is constant from
the start, where theirs grows over the first 50 to 125 billion tokens: no trial favored batches that grow (LOG.md).
Documents are not packed into sequences of 1,024 tokens: a batch holds sequences of any length without padding.

DEVIATION: the original's large begins with base's weights, repeated from the middle (tile_weights_from_middle), and its
rate is 5e-4 for 900 billion tokens and 5e-5 for the rest; here it begins with random weights, and the rate is 5e-4.
"""

from collections.abc import Iterator

from maskwright.data.tokenizers.spec import ByteBPE
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats import DocSentences
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.recipes.optimization import LengthPhase, StableAdamW, Training
from maskwright.recipes.recipe import MaskSampling, Recipe

PAPER = "Warner et al. 2024, arXiv:2412.13663"
ETTIN = "Weller et al. 2025, arXiv:2507.11412"
NOT_PUBLISHED = "not published: ModernBERT at the size of BERT-tiny"

ENCODER = EncoderConfig(
    positions="rotary",
    max_positions=8192,
    rope_theta=10_000.0,  # 160,000 from the context extension on: --set encoder.rope_theta=160000
    local_rope_theta=10_000.0,
    attention_window=64,  # sliding_window 128: 64 to either side
    global_attention_every=3,  # global_attn_every_n_layers
    norm_placement="pre",
    first_attention_norm=False,  # skip_first_prenorm
    norm_bias=False,
    dense_bias=False,
    feed_forward="gated",
    type_vocab_size=0,
    hidden_activation="gelu",
    layer_norm_eps=1e-5,
    # DEVIATION: the original drops 0.1 of the attention's output (attn_out_dropout_prob), not of its probabilities.
    hidden_dropout=0.0,
    attention_dropout=0.1,
    pooler=False,
    initializer="megatron",  # init_method: full_megatron
    initializer_range=0.02,
)

FORMAT = DocSentences()

# DEVIATION: every token but padding is selected with probability 0.30 (sequence_packer.py); here 0.30 n tokens of each
# sequence, rounded at random, which is as many on average.
MASKING = TokenMasking(rate=0.30, rounding="random", rate_relative_to="all", candidates="all", max_targets=None)

REPLACEMENT = MaskRandomKeep(mask=0.8, random=0.1, keep=0.1, per="token", random_from="vocabulary")

_TOKENS_PER_STEP = 4608 * 1024
_STABLE_TOKENS, _DECAY_TOKENS = 1.719e12, 0.05e12


def _training(learning_rate: float, weight_decay: float, warmup_tokens: float) -> Training:
    return Training(
        steps=round((_STABLE_TOKENS + _DECAY_TOKENS) / _TOKENS_PER_STEP),
        batch_sequences=4608,
        phases=(LengthPhase(share=1.0, max_length=1024),),
        learning_rate=learning_rate,
        warmup_steps=round(warmup_tokens / _TOKENS_PER_STEP),
        schedule="warmup_stable_decay",
        decay_share=round(_DECAY_TOKENS / (_STABLE_TOKENS + _DECAY_TOKENS), 3),
        clip_norm=0.0,  # StableAdamW bounds each tensor's update instead
        optimizer=StableAdamW(betas=(0.9, 0.98), eps=1e-6, weight_decay_per_step=weight_decay),
    )


SYSTEMS: tuple[tuple[str, tuple[int, int, int, int], Training, str, str], ...] = (
    # size     layers, hidden, gated, heads   rate, decay, warmup              paper  summary
    ("tiny",   (4, 128, 192, 2),     _training(3e-3, 3e-4, 4e9), ETTIN, NOT_PUBLISHED),
    ("mini",   (7, 256, 384, 4),     _training(3e-3, 3e-4, 4e9), ETTIN, "rotary, windows, gated; Ettin's 17M"),
    ("small",  (10, 384, 576, 6),    _training(3e-3, 3e-4, 4e9), ETTIN, "rotary, windows, gated; Ettin's 32M"),
    ("medium", (19, 512, 768, 8),    _training(3e-3, 3e-4, 3e9), ETTIN, "rotary, windows, gated; Ettin's 68M"),
    ("base",   (22, 768, 1152, 12),  _training(8e-4, 1e-5, 3e9), PAPER, "rotary positions, windows, gated"),
    ("large",  (28, 1024, 2624, 16), _training(5e-4, 1e-6, 2e9), PAPER, "rotary positions, windows, gated"),
)  # fmt: skip


def recipes() -> Iterator[Recipe]:
    """Yield ModernBERT at its two published sizes, Ettin at three smaller ones, and a size for tests."""
    for name, (num_layers, hidden_size, intermediate_size, num_heads), training, paper, summary in SYSTEMS:
        yield Recipe(
            name=f"modernbert/{name}",
            summary=summary,
            paper=paper,
            family="modernbert",
            tokenizer=ByteBPE(vocab_size=50368),
            format=FORMAT,
            masking=MASKING,
            replacement=REPLACEMENT,
            masks=MaskSampling(copies=None),
            objectives=(MaskedLanguageModeling(),),
            encoder=ENCODER.replace(
                num_layers=num_layers,
                hidden_size=hidden_size,
                intermediate_size=intermediate_size,
                num_heads=num_heads,
            ),
            training=training,
        )
