"""A recipe as the rows of a paper's table, and the differences between two recipes.

A field without an entry in the tables below is shown by its own name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.core.fields import kind_of
from maskwright.core.spec import Spec
from maskwright.core.text.amounts import exact_or_short, plain_float, share
from maskwright.pretext.objectives.distillation import MOST_RELATION_HEADS
from maskwright.recipes.optimization import LengthPhase
from maskwright.recipes.recipe import Recipe

ABSENT = "–"
"""Shown if one of two recipes does not have a field."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a recipe's table: "masking", "masking rate", "15 %" and, for `--set`, "masking.rate"."""

    axis: str
    label: str
    value: str
    path: str


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One line of a comparison: the formatted values of two recipes, `ABSENT` without this field."""

    axis: str
    label: str
    left: str
    right: str
    path: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


def rows(recipe: Recipe) -> list[Row]:
    """List all fields of a recipe, axis by axis."""
    return [row for field, axis in AXES.items() for row in _rows(axis, field, getattr(recipe, field))]


def diff(first: Recipe, second: Recipe, every: bool = False) -> list[FieldDifference]:
    """Compare two recipes line by line; with `every`, equal lines too."""
    left, right = ({row.path: row for row in rows(recipe)} for recipe in (first, second))
    compared = []
    for axis in dict.fromkeys(AXES.values()):
        for path in merged(*([path for path, row in side.items() if row.axis == axis] for side in (left, right))):
            old, new = (side[path].value if path in side else ABSENT for side in (left, right))
            comparison = FieldDifference(axis, (left.get(path) or right[path]).label, old, new, path)
            if every or comparison.differs:
                compared.append(comparison)
    return compared


def merged(left: list[str], right: list[str]) -> list[str]:
    """Return the names of both lists in an order that keeps each one's; new ones of the right follow their neighbor."""
    names, position = list(left), 0
    for name in right:
        if name not in names:
            names.insert(position, name)
        position = names.index(name) + 1
    return names


def _rows(axis: str, path: str, value: Any) -> Iterator[Row]:
    if isinstance(value, Spec):
        unused = value.unused(dict(value))
        for name in (each for each in type(value).model_fields if each not in unused):
            yield from _rows(axis, f"{path}.{name}", getattr(value, name))
    elif isinstance(value, tuple) and value and all(isinstance(item, Spec) and kind_of(type(item)) for item in value):
        for item in value:  # Each field of an objective is a row with the objective's name as label.
            kind = kind_of(type(item))
            for name in type(item).model_fields:
                if name != "kind":
                    inner = f"{path}.{kind}.{name}"
                    label, shown = format_field(inner, getattr(item, name))
                    yield Row(axis, format_name(kind), f"{label} {shown}", inner)
    else:
        yield Row(axis, *format_field(path, value), path)


def format_field(path: str, value: Any) -> tuple[str, str]:
    """Return (label, formatted value) of the field at a dotted path of a recipe."""
    return _LABELS.get(path) or format_name(path.rpartition(".")[2]), _FORMATS.get(path, format_value)(value)


def format_name(name: str) -> str:
    """Format a name: "byte_bpe" -> "byte-level BPE", "whole_word" -> "whole word"."""
    return _NAMES.get(name, name.replace("_", " "))


def format_value(value: Any) -> str:
    """Format a value: numbers as in papers, None as "none"."""
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
            return format_name(value)
        case list() | tuple():
            return ", ".join(format_value(item) for item in value) or "none"
        case _:
            return str(value)


AXES: Mapping[str, str] = {
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
"""The recipe fields that are shown, in this order, and their axes."""

_NAMES: Mapping[str, str] = {
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
    "pmi": "collocation",
    "levels": "word, phrase and entity spans",
    "cosine": "cosine loss to the teacher",
    "relations": "relations of queries, keys and values",
    "sentence_vectors": "the teacher's sentence vectors",
    "rtd": "replaced token detection",
    "replace_mlm": "Replace MLM or All-Tokens MLM",
    "adamw": "AdamW",
    "muon": "Muon",
    "stable_adamw": "StableAdamW",
    "ffn": "feed-forward",
    "gelu": "GELU (erf)",
    "gelu_tanh": "GELU (tanh)",
    "relu": "ReLU",
    "bert": "BERT",
    "modernbert": "ModernBERT",
    "ernie": "ERNIE",
    "roberta": "RoBERTa",
    "electra": "ELECTRA",
    "distilbert": "DistilBERT",
}

_LABELS: Mapping[str, str] = {
    "family": "Hugging Face family",
    "tokenizer.vocab_size": "vocabulary size",
    "format.second": "second text",
    "format.short_share": "shorter sequences",
    "format.separator_after": "separator after every",
    "format.single_share": "single-text sequences",
    "masking.kind": "unit",
    "masking.rate": "masking rate",
    "masking.smoothing": "weight of rare tokens",
    "masking.length_shares": "n-grams of 1, 2, ... words",
    "masking.budget": "rate counts",
    "masking.max_targets": "maximum per sequence",
    "masking.geometric_p": "p of geometric span lengths",
    "masking.basic": "words or characters",
    "masking.phrase": "phrases",
    "masking.entity": "entities",
    "replacement.mask": "[MASK] token",
    "replacement.random": "random token",
    "replacement.keep": "unchanged",
    "replacement.similar": "similar word",
    "replacement.max_fallback_rate": "maximum of random fallbacks",
    "replacement.table.source": "similar words from",
    "replacement.table.candidates": "similar words per word",
    "replacement.table.min_similarity": "minimum cosine",
    "replacement.table.min_count": "minimum count",
    "replacement.per": "decided per",
    "replacement.random_from": "random tokens from",
    "masks.copies": "sampled",
    "objectives.sbo.max_tokens": "predicts per span at most",
    "encoder.num_layers": "layers",
    "encoder.num_heads": "attention heads",
    "encoder.intermediate_size": "feed-forward size",
    "encoder.max_positions": "maximum positions",
    "encoder.type_vocab_size": "segment types",
    "encoder.rope_theta": "rotary base",
    "encoder.local_rope_theta": "rotary base in windows",
    "encoder.global_attention_every": "layers without window",
    "encoder.norm_placement": "LayerNorm",
    "encoder.first_attention_norm": "LayerNorm in first attention",
    "encoder.norm_bias": "LayerNorm bias",
    "encoder.dense_bias": "biases of dense layers",
    "encoder.feed_forward": "feed-forward",
    "encoder.hidden_activation": "activation",
    "encoder.layer_norm_eps": "LayerNorm epsilon",
    "encoder.hidden_dropout": "dropout",
    "encoder.sharing": "shared across layers",
    "encoder.num_groups": "layer groups",
    "encoder.initializer": "initialization",
    "encoder.initializer_range": "initialization std",
    "generator.size": "generator width",
    "generator.shared": "generator shares",
    "teacher.model": "teacher",
    "teacher.initialize": "initialized from",
    "training.batch_sequences": "batch size",
    "training.phases": "sequence length",
    "training.warmup_steps": "warmup",
    "training.decay_share": "decay",
    "training.clip_norm": "gradient clipping norm",
    "training.optimizer.kind": "optimizer",
    "training.optimizer.eps": "epsilon",
    "training.optimizer.matrix_learning_rate": "learning rate of matrices",
    "training.optimizer.decayed": "weight decay on",
}


def _one_of(**names: str) -> Callable[[Any], str]:
    return lambda value: names.get(value, format_name(value))


def _copies(copies: int | None) -> str:
    return "every epoch (dynamic masking)" if copies is None else f"{copies} times, then repeated (static masking)"


def _phases(phases: tuple[LengthPhase, ...]) -> str:
    if len(phases) == 1:
        return f"{phases[0].max_length:,}"
    return " + ".join(f"{share(phase.share)} at {phase.max_length}" for phase in phases)


_SHARES = (
    "format.short_share",
    "format.single_share",
    "masking.rate",
    "masking.basic",
    "masking.phrase",
    "masking.entity",
    "replacement.mask",
    "replacement.random",
    "replacement.keep",
    "replacement.similar",
    "replacement.max_fallback_rate",
)
_TOKENS = _one_of(all="all tokens, including special", ordinary="tokens without special ones")
_LOSS_AT = _one_of(everywhere="every token", selected="selected tokens")

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(_SHARES, share),
    "tokenizer.vocab_size": lambda size: f"{size:,}",
    "masking.rounding": _one_of(half_even="half to even", random="stochastic"),
    "masking.rate_relative_to": _TOKENS,
    "masking.candidates": _TOKENS,
    "masking.sampling": _one_of(rare="rare tokens more often"),
    "masking.smoothing": lambda value: f"count to the power -{format_value(value)}",
    "masking.length_shares": lambda shares: ", ".join(map(share, shares)),
    "masking.order": _one_of(random="random order"),
    "replacement.table.source": _one_of(corpus="word vectors trained on the corpus"),
    "replacement.random_from": _one_of(
        vocabulary="the whole vocabulary", ordinary="without pad, unk, cls, sep", corpus="the corpus, by frequency"
    ),
    "masks.copies": _copies,
    "objectives.sbo.max_tokens": lambda value: f"{value} tokens",
    "objectives.rtd.loss_at": _LOSS_AT,
    "objectives.replace_mlm.loss_at": _LOSS_AT,
    "objectives.soft_targets.loss_at": _LOSS_AT,
    "objectives.relations.relation_heads": lambda number: (
        f"at most {MOST_RELATION_HEADS}" if number is None else f"{number}"
    ),
    "objectives.sentence_vectors.vector_size": lambda size: "the teacher's" if size is None else f"{size}",
    "objectives.relations.teacher_layer": lambda layer: "the last" if layer is None else f"{layer}",
    "encoder.embedding_size": lambda size: "same as hidden size" if size is None else format_value(size),
    "encoder.embedding_projection": _one_of(if_needed="if the sizes differ"),
    "encoder.sharing": _one_of(all="attention and feed-forward"),
    "encoder.positions": _one_of(absolute="table of embeddings"),
    **dict.fromkeys(("encoder.rope_theta", "encoder.local_rope_theta"), lambda base: f"{base:,.0f}"),
    "encoder.attention_window": lambda size: "none" if size is None else f"{size} tokens to either side",
    "encoder.global_attention_every": lambda number: f"the first of every {number}",
    "encoder.norm_placement": _one_of(post="after each sublayer", pre="before each sublayer"),
    "encoder.feed_forward": _one_of(dense="two layers", gated="two layers, gated"),
    "encoder.initializer": _one_of(
        truncated_normal="normal, truncated at 2 std",
        megatron="normal, truncated at 2 std; output layers / sqrt(2 layers)",
    ),
    "encoder.initial_attention": _one_of(neighbors="to neighboring tokens"),
    "encoder.initial_embeddings": _one_of(cooccurrence="by tokens' neighbors in the corpus"),
    "generator.size": lambda value: f"{share(value)} of the encoder's",
    "teacher.model": lambda model: model or "set with --teacher",
    "teacher.initialize": _one_of(
        layers="the teacher's embeddings, head and some layers",
        embeddings="the teacher's embeddings",
        none="random weights",
    ),
    "training.batch_sequences": lambda value: f"{exact_or_short(value)} sequences",
    "training.phases": _phases,
    "training.warmup_steps": lambda value: f"{exact_or_short(value)} steps",
    "training.schedule": _one_of(
        linear="linear warmup and decay",
        linear_jump="linear warmup, decay counted from step 0",
        linear_product="linear warmup times linear decay",
        warmup_stable_decay="linear warmup, constant, 1 - sqrt decay",
    ),
    "training.decay_share": lambda value: f"the last {share(value)}",
    "training.clip_norm": lambda value: format_value(value) if value else "off",
    "training.optimizer.decayed": _one_of(matrices="all but biases and LayerNorm", all="all parameters"),
}
