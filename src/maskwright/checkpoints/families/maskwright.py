"""The format of encoders that no Hugging Face class computes: our own names and fields. transformers cannot load it."""

from collections.abc import Mapping
from typing import Any

from maskwright.checkpoints.families.base import ConfigTable, DropoutEntry, Family, Pair, TaskHead
from maskwright.checkpoints.families.tables import (
    EMBEDDINGS,
    LAYER,
    RTD_HEAD,
    SBO_HEAD,
    both,
    mlm_head,
    over_tokens,
    task_heads,
)
from maskwright.core.errors import ConversionError
from maskwright.core.types import SpecialTokens
from maskwright.model.config import EncoderConfig

_FIELDS = "encoder"


def _write(config: EncoderConfig, special_tokens: SpecialTokens) -> dict[str, Any]:
    return {_FIELDS: config.model_dump(mode="json")}


def _read(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    fields = data.get(_FIELDS)
    if not isinstance(fields, dict):
        raise ConversionError(f"{source}: {_FIELDS} is {fields!r}", allowed="the fields of the encoder")
    return fields


def _same(pairs: tuple[Pair, ...], prefix: str = "") -> tuple[Pair, ...]:
    return tuple((ours, prefix + ours) for ours, _ in pairs)


_PAIR = both("classifier", "classifier")
_HEADS = {"mlm": mlm_head("dense", "layer_norm", "bias"), "nsp": _PAIR, "sop": _PAIR, "rtd": RTD_HEAD, "sbo": SBO_HEAD}
_BODY = (*EMBEDDINGS, *both("final_norm", ""), *(pair for name in LAYER for pair in both(name, name)))

_DROPOUT = DropoutEntry("classifier_dropout")
_SEQUENCE = TaskHead(
    source="first", dense="classifier.dense", drops_source=True, output="classifier.output", dropout=_DROPOUT
)

MASKWRIGHT = Family(
    name="maskwright",
    prefix="encoder.",
    body=_same(_BODY),
    projection=both("embedding_projection", "embedding_projection"),
    pooler=both("pooler", "pooler"),
    heads={kind: _same(pairs, f"heads.{kind}.") for kind, pairs in _HEADS.items()},
    # Over sequences RoBERTa's, which needs no pooler.
    tasks=task_heads("Encoder", sequence=_SEQUENCE, choice=_SEQUENCE, token=over_tokens(_DROPOUT)),
    tied=(),
    architectures=((frozenset(), "Encoder"),),
    config=ConfigTable(
        fields=(),
        activation=("hidden_activation", "gelu"),
        expresses=frozenset(EncoderConfig.model_fields),
        vocab_size=30522,
        write=_write,
        read=_read,
    ),
)
