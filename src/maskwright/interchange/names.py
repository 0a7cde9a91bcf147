"""What each weight is called here and in Hugging Face's classes: reversible tables, one per family, as data.

A table lists pairs (ours, theirs). "{n}" stands for a layer's number on their side; on ours for the number of
the distinct block that the layer uses, so that families whose layers share weights need no table of their
own. What families have in common is written once.

A family more is one `Family` here and one `ConfigTable` in `config_json`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from maskwright.core.errors import ConversionError, unknown_name
from maskwright.encoder.config import EncoderConfig

FamilyName = Literal["bert", "roberta", "albert", "electra", "distilbert", "ernie"]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The weight names of one family.

    Attributes:
        name: Hugging Face's `model_type`.
        prefix: What stands before the body's names in classes with heads; bare models have no prefix.
        body: Pairs of the encoder, without "encoder." and without the prefix, in the order of the forward
            pass.
        pooler: Pairs of the pooler, in the same form.
        heads: For each head, its pairs, without "heads.KIND.".
        tied: Second names that files may carry for a weight: (theirs, the name of theirs that it must equal).
        ignored: Ends of names that old files carry and nothing needs.
        architectures: (heads, class): the first whose heads are all there is the class that suits a model.
    """

    name: FamilyName
    prefix: str
    body: tuple[Pair, ...]
    pooler: tuple[Pair, ...]
    heads: Mapping[str, tuple[Pair, ...]]
    tied: tuple[Pair, ...]
    ignored: tuple[str, ...]
    architectures: tuple[tuple[frozenset[str], str], ...]

    def pairs(self, config: EncoderConfig, heads: frozenset[str], prefix: str) -> tuple[Pair, ...]:
        """List (ours, theirs) for every weight of a model. Blocks that layers share stand once a layer.

        Args:
            config: The shape.
            heads: Which heads there are.
            prefix: `prefix`, or "" for a bare model.
        """
        pairs = []
        for ours, theirs in self.body:
            if "{n}" not in ours:
                pairs.append((ours, theirs))
                continue
            plan = config.layer_plan("attention" if ours.startswith("attention_blocks") else "ffn")
            pairs += [(ours.format(n=block), theirs.format(n=layer)) for layer, block in enumerate(plan)]
        if config.pooler:
            pairs += self.pooler
        full = [(f"encoder.{ours}", prefix + theirs) for ours, theirs in pairs]
        for head in sorted(heads):
            full += [(f"heads.{head}.{ours}", theirs) for ours, theirs in self.heads[head]]
        return tuple(full)

    def layer_starts(self, prefix: str) -> tuple[str, ...]:
        """List what the names of all layers' weights begin with, up to the layer's number."""
        return tuple({prefix + theirs.partition("{n}")[0] for _, theirs in self.body if "{n}" in theirs})

    def architecture(self, heads: frozenset[str]) -> str:
        """Return Hugging Face's class for a model with these heads."""
        return next(name for needed, name in self.architectures if needed <= heads)


def _weight(ours: str, theirs: str) -> tuple[Pair, ...]:
    return ((f"{ours}.weight", f"{theirs}.weight"),)


def _both(ours: str, theirs: str) -> tuple[Pair, ...]:
    return ((f"{ours}.weight", f"{theirs}.weight"), (f"{ours}.bias", f"{theirs}.bias"))


_EMBEDDINGS = (
    *_weight("word_embeddings", "embeddings.word_embeddings"),
    *_weight("position_embeddings", "embeddings.position_embeddings"),
    *_weight("segment_embeddings", "embeddings.token_type_embeddings"),
    *_both("embedding_norm", "embeddings.LayerNorm"),
)

# BERT's layers: also RoBERTa's, ELECTRA's and ERNIE's.
_LAYERS = (
    *_both("attention_blocks.{n}.query", "encoder.layer.{n}.attention.self.query"),
    *_both("attention_blocks.{n}.key", "encoder.layer.{n}.attention.self.key"),
    *_both("attention_blocks.{n}.value", "encoder.layer.{n}.attention.self.value"),
    *_both("attention_blocks.{n}.output", "encoder.layer.{n}.attention.output.dense"),
    *_both("attention_blocks.{n}.norm", "encoder.layer.{n}.attention.output.LayerNorm"),
    *_both("ffn_blocks.{n}.dense_in", "encoder.layer.{n}.intermediate.dense"),
    *_both("ffn_blocks.{n}.dense_out", "encoder.layer.{n}.output.dense"),
    *_both("ffn_blocks.{n}.norm", "encoder.layer.{n}.output.LayerNorm"),
)

_POOLER = _both("pooler", "pooler.dense")
_PAIR_HEAD = _both("classifier", "cls.seq_relationship")
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

_BERT = Family(
    name="bert",
    prefix="bert.",
    body=(*_EMBEDDINGS, *_LAYERS),
    pooler=_POOLER,
    heads={
        "mlm": (
            *_both("dense", "cls.predictions.transform.dense"),
            *_both("layer_norm", "cls.predictions.transform.LayerNorm"),
            ("bias", "cls.predictions.bias"),
        ),
        "nsp": _PAIR_HEAD,
    },
    tied=(
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
    ignored=_BUFFERS,
    architectures=(
        (frozenset({"mlm", "nsp"}), "BertForPreTraining"),
        (frozenset({"mlm"}), "BertForMaskedLM"),
        (frozenset({"nsp"}), "BertForNextSentencePrediction"),
        (frozenset(), "BertModel"),
    ),
)

_ROBERTA = Family(
    name="roberta",
    prefix="roberta.",
    body=(*_EMBEDDINGS, *_LAYERS),
    pooler=_POOLER,
    heads={
        "mlm": (
            *_both("dense", "lm_head.dense"),
            *_both("layer_norm", "lm_head.layer_norm"),
            ("bias", "lm_head.bias"),
        ),
        # No class of RoBERTa has this head: the name is BERT's, and RoBERTa's classes pass over it.
        "nsp": _PAIR_HEAD,
    },
    tied=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
    ignored=_BUFFERS,
    architectures=((frozenset({"mlm"}), "RobertaForMaskedLM"), (frozenset(), "RobertaModel")),
)

_FAMILIES = {family.name: family for family in (_BERT, _ROBERTA)}


def family_named(name: str, source: str = "") -> Family:
    """Return the table of a family.

    Args:
        name: Hugging Face's `model_type`.
        source: Where the name was found, for the message.

    Raises:
        ConversionError: If there is no such table.
    """
    for family in _FAMILIES.values():
        if family.name == name:
            return family
    problem, allowed, todo = unknown_name("model_type", name, _FAMILIES)
    raise ConversionError(f"{source}: {problem}" if source else problem, allowed=allowed, todo=todo)
