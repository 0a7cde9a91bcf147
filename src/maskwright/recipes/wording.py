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
        "unigram": "SentencePiece unigram",
        "ngram": "word n-gram",
        "sop": "sentence order",
        "lamb": "LAMB",
        "albert": "ALBERT",
        "mask_random_keep": "mask / random / keep",
        "mlm": "masked language model",
        "nsp": "next sentence",
        "sbo": "span boundary",
        "dlm": "real dialogue",
        "pmi": "collocation",
        "levels": "basic unit, phrase or entity",
        "soft_targets": "soft targets",
        "cosine": "cosine to the teacher",
        "rtd": "replaced token detection",
        "adamw": "AdamW",
        "ffn": "feed-forward",
        "gelu": "GELU (erf)",
        "gelu_tanh": "GELU (tanh)",
        "relu": "ReLU",
        "bert": "BERT",
        "ernie": "ERNIE",
        "roberta": "RoBERTa",
        "electra": "ELECTRA",
        "distilbert": "DistilBERT",
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
        return "as the sharing says"
    return "one, shared by all layers" if max(plan) == 0 else " ".join(map(str, plan))


_WORDING: Mapping[str, tuple[str, Formatter]] = MappingProxyType(
    {
        "family": ("Hugging Face family", value_words),
        "tokenizer.vocab_size": ("vocabulary", lambda value: f"{value:,}"),
        "tokenizer.lowercase": ("lower-cased", value_words),
        "tokenizer.character_coverage": ("share of characters with an entry", value_words),
        "format.second": ("second text", value_words),
        "format.short_share": ("with a shorter target", share),
        "format.num_separators_between": ("separators between texts", value_words),
        "format.separator_after": ("separator after each", value_words),
        "format.single_share": ("single texts", share),
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
        "masking.favour": ("favoured", _choice({"uniform": "none", "rare": "rare tokens"})),
        "masking.smoothing": (
            "weight if rare ones are favoured",
            lambda value: f"count to the power -{value_words(value)}",
        ),
        "masking.length_shares": (
            "units of 1, 2, ... words",
            lambda shares: ", ".join(share(each) for each in shares),
        ),
        "masking.budget": ("counted in", value_words),
        "masking.order": ("units placed", _choice({"random": "in random order"})),
        "masking.max_targets": ("most per sequence", _or("no cap")),
        "masking.geometric_p": ("span lengths geometric with p", value_words),
        "masking.cut_last_word": ("last word cut at the budget", value_words),
        "masking.basic": ("share on basic units", share),
        "masking.phrase": ("share on phrases", share),
        "masking.entity": ("share on entities", share),
        "replacement.mask": ("mask token", share),
        "replacement.random": ("random token", share),
        "replacement.keep": ("kept as it is", share),
        "replacement.similar": ("similar word", share),
        "replacement.max_stand_ins": ("most random words for want of similar ones", share),
        "replacement.table.source": ("similar words from", _choice({"corpus": "vectors learnt from the corpus"})),
        "replacement.table.candidates": ("similar words kept of each", value_words),
        "replacement.table.min_similarity": ("least cosine", value_words),
        "replacement.table.min_count": ("least occurrences", value_words),
        "replacement.per": ("decided per", value_words),
        "replacement.random_from": (
            "random tokens from",
            _choice(
                {
                    "vocabulary": "the whole vocabulary",
                    "ordinary": "all but pad, unk, cls, sep",
                    "corpus": "the corpus, as often as they stand in it",
                }
            ),
        ),
        "masks.copies": ("drawn", _copies),
        "objectives.sbo.max_places": ("most asked of a span", lambda value: f"{value} tokens"),
        "encoder.num_layers": ("layers", value_words),
        "encoder.num_heads": ("attention heads", value_words),
        "encoder.intermediate_size": ("feed-forward size", value_words),
        "encoder.embedding_size": ("embedding size", _or("as hidden size")),
        "encoder.embedding_projection": ("embedding projection", _choice({"if_needed": "where the sizes differ"})),
        "encoder.max_positions": ("positions", value_words),
        "encoder.position_offset": ("first position", value_words),
        "encoder.type_vocab_size": ("segment kinds", value_words),
        "encoder.hidden_activation": ("activation", value_words),
        "encoder.layer_norm_eps": ("LayerNorm epsilon", value_words),
        "encoder.hidden_dropout": ("dropout", value_words),
        "encoder.sharing": ("layers share", _choice({"none": "nothing", "all": "attention and feed-forward"})),
        "encoder.num_groups": ("groups of layers that share", value_words),
        "encoder.blocks_per_group": ("blocks in a group", value_words),
        "encoder.attention_plan": ("attention blocks", _plan),
        "encoder.ffn_plan": ("feed-forward blocks", _plan),
        "encoder.initializer": ("initial weights", _choice({"truncated_normal": "normal, cut at 2 sigma"})),
        "encoder.initializer_range": ("initial deviation", value_words),
        "encoder.initial_attention": (
            "attention begins",
            _choice({"random": "at random", "neighbours": "at neighbours"}),
        ),
        "generator": ("generator", _or("none")),
        "generator.size": ("generator's width", lambda value: f"{share(value)} of the encoder's"),
        "generator.depth": ("generator's layers", lambda value: f"{share(value)} of the encoder's"),
        "generator.shared": ("generator shares", value_words),
        "objectives.rtd.loss_at": (
            "asked at",
            _choice({"everywhere": "every token", "selected": "the selected tokens"}),
        ),
        "teacher": ("teacher", _or("none")),
        "teacher.model": ("teacher", lambda value: value or "any run or model folder: --teacher"),
        "teacher.initialise": (
            "begins with",
            _choice({"layers": "the teacher's embeddings, head and some layers", "none": "random weights"}),
        ),
        "objectives.soft_targets.temperature": ("temperature", value_words),
        "objectives.soft_targets.loss_at": (
            "asked at",
            _choice({"everywhere": "every token", "selected": "the selected tokens"}),
        ),
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
