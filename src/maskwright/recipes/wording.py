"""Recipe fields in the words of the papers' tables. A field not named here is shown under its own name."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from maskwright.core.amounts import exact_or_short, plain_float, share
from maskwright.recipes.optimization import LengthPhase

AXES: Mapping[str, str] = MappingProxyType(
    {
        "tokenizer": "tokenizer",
        "words": "tokenizer",
        "format": "input format",
        "masking": "masking",
        "replacement": "replacement",
        "masks": "masks",
        "objectives": "objectives",
        "family": "encoder",
        "encoder": "encoder",
        "generator": "encoder",
        "teacher": "encoder",
        "training": "training",
    }
)
"""Recipe fields that are shown, in this order, and the axis each belongs to."""

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "wordpiece": "WordPiece",
        "byte_bpe": "byte-level BPE",
        "mask_random_keep": "mask / random / keep",
        "mlm": "masked language model",
        "nsp": "next sentence",
        "adamw": "AdamW",
        "ffn": "feed-forward",
        "gelu": "GELU (erf)",
        "gelu_tanh": "GELU (tanh)",
        "relu": "ReLU",
        "bert": "BERT",
        "roberta": "RoBERTa",
    }
)

Formatter = Callable[[Any], str]


def name_words(name: str) -> str:
    """Write a name in words: "byte_bpe" -> "byte-level BPE", "whole_word" -> "whole word"."""
    return _KINDS.get(name, name.replace("_", " "))


def value_words(value: Any) -> str:
    """Write any field's value: numbers as in papers, names in words, nothing as "none"."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return exact_or_short(value)
        case float():
            return plain_float(value)
        case str():
            return name_words(value)
        case list() | tuple():
            return ", ".join(value_words(item) for item in value) or "none"
        case _:
            return str(value)


def field_words(path: str, value: Any) -> tuple[str, str]:
    """Return (label, value in words) of the field at a dotted path of a recipe."""
    label, write = _WORDING.get(path, (name_words(path.rpartition(".")[2]), value_words))
    return label, write(value)


def _or(nothing: str, write: Formatter = value_words) -> Formatter:
    return lambda value: nothing if value is None else write(value)


def _choice(words: Mapping[str, str]) -> Formatter:
    return lambda value: words.get(value, name_words(value))


def _phases(phases: tuple[LengthPhase, ...]) -> str:
    if len(phases) == 1:
        return str(phases[0].max_length)
    return " + ".join(f"{share(phase.share)} at {phase.max_length}" for phase in phases)


def _copies(copies: int | None) -> str:
    return "anew in every epoch (dynamic)" if copies is None else f"{copies} times, then repeated (static)"


def _plan(plan: tuple[int, ...] | None) -> str:
    if plan is None:
        return "one a layer"
    return "one, shared by all layers" if max(plan) == 0 else " ".join(map(str, plan))


_WORDING: Mapping[str, tuple[str, Formatter]] = MappingProxyType(
    {
        "family": ("Hugging Face family", value_words),
        "tokenizer.vocab_size": ("vocabulary", lambda value: f"{value:,}"),
        "tokenizer.lowercase": ("lower-cased", value_words),
        "format.second": ("second text", value_words),
        "format.short_share": ("documents cut short", share),
        "format.num_separators_between": ("separators between texts", value_words),
        "format.separator_after": ("separator after each", value_words),
        "masking.kind": ("unit", value_words),
        "masking.rate": ("share selected", share),
        "masking.rounding": (
            "rounding",
            _choice({"half_even": "half to even", "random": "at random, right on average"}),
        ),
        "masking.counted": (
            "share of",
            _choice({"all": "all tokens, special ones too", "ordinary": "ordinary tokens"}),
        ),
        "masking.candidates": (
            "selected from",
            _choice({"all": "all tokens, special ones too", "ordinary": "ordinary tokens"}),
        ),
        "masking.max_targets": ("most per sequence", _or("no cap")),
        "replacement.mask": ("mask token", share),
        "replacement.random": ("random token", share),
        "replacement.keep": ("kept as it is", share),
        "replacement.per": ("decided per", value_words),
        "replacement.random_from": (
            "random tokens from",
            _choice({"vocabulary": "the whole vocabulary", "ordinary": "all but pad, unk, cls, sep"}),
        ),
        "masks.copies": ("drawn", _copies),
        "encoder.num_layers": ("layers", value_words),
        "encoder.num_heads": ("attention heads", value_words),
        "encoder.intermediate_size": ("feed-forward size", value_words),
        "encoder.embedding_size": ("embedding size", _or("as hidden size")),
        "encoder.max_positions": ("positions", value_words),
        "encoder.position_offset": ("first position", value_words),
        "encoder.type_vocab_size": ("segment kinds", value_words),
        "encoder.hidden_activation": ("activation", value_words),
        "encoder.layer_norm_eps": ("LayerNorm epsilon", value_words),
        "encoder.hidden_dropout": ("dropout", value_words),
        "encoder.attention_plan": ("attention blocks", _plan),
        "encoder.ffn_plan": ("feed-forward blocks", _plan),
        "encoder.initializer": ("initial weights", _choice({"truncated_normal": "normal, cut at 2 sigma"})),
        "encoder.initializer_range": ("initial deviation", value_words),
        "training.batch_sequences": ("batch", lambda value: f"{exact_or_short(value)} sequences"),
        "training.phases": ("sequence length", _phases),
        "training.warmup_steps": ("warm-up", lambda value: f"{exact_or_short(value)} steps"),
        "training.schedule": (
            "schedule",
            _choice(
                {
                    "linear": "up to the peak, then linearly to 0",
                    "linear_jump": "linear, decay counted from step 0",
                    "linear_product": "linear, warm-up times decay",
                }
            ),
        ),
        "training.clip_norm": ("gradient norm cut at", lambda value: value_words(value) if value else "off"),
        "training.optimizer.kind": ("optimizer", value_words),
        "training.optimizer.eps": ("epsilon", value_words),
        "training.optimizer.decayed": (
            "decayed",
            _choice({"matrices": "all but biases and LayerNorm", "all": "every parameter"}),
        ),
    }
)
