"""Labels and formats of recipe fields, as in the papers' tables. A field not listed here is shown by its own name."""

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
        "sop": "sentence order prediction",
        "lamb": "LAMB",
        "albert": "ALBERT",
        "mask_random_keep": "mask / random / keep",
        "mlm": "masked language modeling",
        "nsp": "next sentence prediction",
        "sbo": "span boundary objective",
        "dlm": "dialogue language model",
        "pmi": "collocation",
        "levels": "word, phrase and entity spans",
        "soft_targets": "soft targets",
        "cosine": "cosine loss to the teacher",
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
    """Format a name: "byte_bpe" -> "byte-level BPE", "whole_word" -> "whole word"."""
    return _KINDS.get(name, name.replace("_", " "))


def value_words(value: Any) -> str:
    """Format a field's value: numbers as in papers, None as "none"."""
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
    """Return (label, formatted value) of the field at a dotted path of a recipe."""
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
    return "every epoch (dynamic masking)" if copies is None else f"{copies} times, then repeated (static masking)"


def _plan(plan: tuple[int, ...] | None) -> str:
    if plan is None:
        return "as set by sharing"
    return "one, shared by all layers" if max(plan) == 0 else " ".join(map(str, plan))


_WORDING: Mapping[str, tuple[str, Formatter]] = MappingProxyType(
    {
        "family": ("Hugging Face family", value_words),
        "tokenizer.vocab_size": ("vocabulary size", lambda value: f"{value:,}"),
        "tokenizer.lowercase": ("lowercase", value_words),
        "tokenizer.character_coverage": ("character coverage", value_words),
        "format.second": ("second text", value_words),
        "format.short_share": ("shorter sequences", share),
        "format.num_separators_between": ("separators between texts", value_words),
        "format.separator_after": ("separator after every", value_words),
        "format.single_share": ("single-text sequences", share),
        "masking.kind": ("unit", value_words),
        "masking.rate": ("masking rate", share),
        "masking.rounding": (
            "rounding",
            _choice({"half_even": "half to even", "random": "stochastic", "up": "up", "down": "down"}),
        ),
        "masking.counted": (
            "rate relative to",
            _choice({"all": "all tokens, including special", "ordinary": "tokens without special ones"}),
        ),
        "masking.candidates": (
            "candidates",
            _choice({"all": "all tokens, including special", "ordinary": "tokens without special ones"}),
        ),
        "masking.favour": ("sampling", _choice({"uniform": "uniform", "rare": "rare tokens more often"})),
        "masking.smoothing": (
            "weight of rare tokens",
            lambda value: f"count to the power -{value_words(value)}",
        ),
        "masking.length_shares": (
            "n-grams of 1, 2, ... words",
            lambda shares: ", ".join(share(each) for each in shares),
        ),
        "masking.budget": ("rate counts", value_words),
        "masking.order": ("order", _choice({"random": "random order"})),
        "masking.max_targets": ("maximum per sequence", _or("none")),
        "masking.geometric_p": ("p of geometric span lengths", value_words),
        "masking.cut_last_word": ("cut the last word at the budget", value_words),
        "masking.basic": ("words or characters", share),
        "masking.phrase": ("phrases", share),
        "masking.entity": ("entities", share),
        "replacement.mask": ("[MASK] token", share),
        "replacement.random": ("random token", share),
        "replacement.keep": ("unchanged", share),
        "replacement.similar": ("similar word", share),
        "replacement.max_stand_ins": ("maximum of random fallbacks", share),
        "replacement.table.source": ("similar words from", _choice({"corpus": "word vectors trained on the corpus"})),
        "replacement.table.candidates": ("similar words per word", value_words),
        "replacement.table.min_similarity": ("minimum cosine", value_words),
        "replacement.table.min_count": ("minimum count", value_words),
        "replacement.per": ("decided per", value_words),
        "replacement.random_from": (
            "random tokens from",
            _choice(
                {
                    "vocabulary": "the whole vocabulary",
                    "ordinary": "without pad, unk, cls, sep",
                    "corpus": "the corpus, by frequency",
                }
            ),
        ),
        "masks.copies": ("sampled", _copies),
        "objectives.sbo.max_places": ("predicts per span at most", lambda value: f"{value} tokens"),
        "encoder.num_layers": ("layers", value_words),
        "encoder.num_heads": ("attention heads", value_words),
        "encoder.intermediate_size": ("feed-forward size", value_words),
        "encoder.embedding_size": ("embedding size", _or("same as hidden size")),
        "encoder.embedding_projection": ("embedding projection", _choice({"if_needed": "if the sizes differ"})),
        "encoder.max_positions": ("maximum positions", value_words),
        "encoder.position_offset": ("position offset", value_words),
        "encoder.type_vocab_size": ("segment types", value_words),
        "encoder.hidden_activation": ("activation", value_words),
        "encoder.layer_norm_eps": ("LayerNorm epsilon", value_words),
        "encoder.hidden_dropout": ("dropout", value_words),
        "encoder.sharing": ("shared across layers", _choice({"none": "none", "all": "attention and feed-forward"})),
        "encoder.num_groups": ("layer groups", value_words),
        "encoder.blocks_per_group": ("blocks per group", value_words),
        "encoder.attention_plan": ("attention blocks", _plan),
        "encoder.ffn_plan": ("feed-forward blocks", _plan),
        "encoder.initializer": ("initialization", _choice({"truncated_normal": "normal, truncated at 2 std"})),
        "encoder.initializer_range": ("initialization std", value_words),
        "encoder.initial_attention": (
            "initial attention",
            _choice({"random": "random", "neighbours": "to neighboring tokens"}),
        ),
        "generator": ("generator", _or("none")),
        "generator.size": ("generator width", lambda value: f"{share(value)} of the encoder's"),
        "generator.depth": ("generator layers", lambda value: f"{share(value)} of the encoder's"),
        "generator.shared": ("generator shares", value_words),
        "objectives.rtd.loss_at": (
            "loss at",
            _choice({"everywhere": "every token", "selected": "selected tokens"}),
        ),
        "teacher": ("teacher", _or("none")),
        "teacher.model": ("teacher", lambda value: value or "set with --teacher"),
        "teacher.initialise": (
            "initialized from",
            _choice({"layers": "the teacher's embeddings, head and some layers", "none": "random weights"}),
        ),
        "objectives.soft_targets.temperature": ("temperature", value_words),
        "objectives.soft_targets.loss_at": (
            "loss at",
            _choice({"everywhere": "every token", "selected": "selected tokens"}),
        ),
        "training.batch_sequences": ("batch size", lambda value: f"{exact_or_short(value)} sequences"),
        "training.phases": ("sequence length", _phases),
        "training.warmup_steps": ("warmup", lambda value: f"{exact_or_short(value)} steps"),
        "training.schedule": (
            "schedule",
            _choice(
                {
                    "linear": "linear warmup and decay",
                    "linear_jump": "linear warmup, decay counted from step 0",
                    "linear_product": "linear warmup times linear decay",
                }
            ),
        ),
        "training.clip_norm": ("gradient clipping norm", lambda value: value_words(value) if value else "off"),
        "training.optimizer.kind": ("optimizer", value_words),
        "training.optimizer.eps": ("epsilon", value_words),
        "training.optimizer.decayed": (
            "weight decay on",
            _choice({"matrices": "all but biases and LayerNorm", "all": "all parameters"}),
        ),
    }
)
