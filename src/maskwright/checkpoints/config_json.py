"""Convert between config.json and `EncoderConfig`, by one table per family."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.checkpoints.families import Family
from maskwright.checkpoints.families.base import groups_of
from maskwright.checkpoints.refusals import position_offset, refuse_inexpressible, refuse_other_entries
from maskwright.checkpoints.task_entries import TaskEntries, entries_to_json
from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.spec import validate
from maskwright.core.types import SpecialTokens
from maskwright.model.config import MAX_LAYERS, EncoderConfig

# The first name is written. "gelu_pytorch_tanh" equals ours bit for bit; the others round differently.
_ACTIVATIONS = {
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"),
    "gelu": ("gelu", "gelu_python"),
    "relu": ("relu",),
}

# Entries that Hugging Face's format does not define; its classes keep them.
_SHARING = ("sharing", "num_groups", "blocks_per_group")
_TRAINED_LENGTH = "trained_length"
_CONSTANTS = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
_PAIR_HEAD = "pair_head"
_SHORTEST = 3  # a token between the special ones


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """The content of a config.json.

    Attributes:
        config: The shape, except for the pooler and a projection where E equals H, which only the weights show.
        trained_length: Longest sequence of the training, in tokens, or the number of positions.
        pair_head: Which of the heads with the same names the folder has, if stated.
        architectures: The classes named in it, e.g. ("RobertaForMaskedLM",).
        tied: Whether the output matrix is the word embeddings unless the weights contain another one.
    """

    config: EncoderConfig
    vocab_size: int
    pad_token_id: int
    trained_length: int
    pair_head: str | None
    architectures: tuple[str, ...]
    tied: bool


def to_json(
    family: Family,
    config: EncoderConfig,
    special_tokens: SpecialTokens,
    heads: frozenset[str],
    trained_length: int,
    task: TaskEntries | None = None,
) -> dict[str, Any]:
    """Return the config.json of a model with these heads; `special_tokens` has padding id, ends and vocabulary size.

    Raises ConversionError if the family's classes cannot express the shape.
    """
    refuse_inexpressible(family, config, special_tokens.pad, heads)
    table = family.config
    data: dict[str, Any] = {
        "architectures": [family.architecture(heads)],
        "model_type": family.name,
        "vocab_size": special_tokens.vocab_size,
        **{key: getattr(config, name) for name, key, _ in table.fields},
        table.activation[0]: _ACTIVATIONS[config.hidden_activation][0],
        **table.constants,
        "max_position_embeddings": config.max_positions + config.position_offset,
        "pad_token_id": special_tokens.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
        _TRAINED_LENGTH: trained_length,
    }
    if "embedding_size" in data:
        data["embedding_size"] = config.embedding_width
    if table.names_ends:
        data |= {"bos_token_id": special_tokens.cls, "eos_token_id": special_tokens.sep}
    for kind in heads & family.heads.keys():
        if family.same_names(kind)[0] != kind:
            data[_PAIR_HEAD] = kind
    if table.write is not None:
        data |= table.write(config, special_tokens)
    if task is not None:
        data |= entries_to_json(family, task)
    return data | _sharing(family, config)


def _sharing(family: Family, config: EncoderConfig) -> dict[str, Any]:
    if "sharing" in family.config.expresses:
        return {}
    entries = {} if config.sharing == "none" else {name: getattr(config, name) for name in _SHARING}
    if not family.config.grouped:
        return entries
    groups = groups_of(config)
    return {"num_hidden_groups": groups} if groups else {"num_hidden_groups": config.num_layers, **entries}


def from_json(family: Family, data: Mapping[str, Any], source: str) -> FolderConfig:
    """Return the encoder's shape from the content `data` of the config.json at `source`.

    Raises ConversionError if the encoder does not support the configuration, or its numbers are inconsistent.
    """
    table = family.config
    constants = _CONSTANTS | dict(table.constants)
    if "positions" in table.fixed:
        del constants["position_embedding_type"]  # Ettin's and mmBERT's "sans_pos": the classes do not read it.
    refuse_other_entries(data, constants, source)
    pad = _read_integer(data, "pad_token_id", table.pad_token_id, source)
    offset = position_offset(family, pad)
    positions = _read_integer(data, "max_position_embeddings", table.max_positions, source) - offset
    activation_key, default_activation = table.activation
    fields = {
        **{name: data.get(key, default) for name, key, default in table.fields},
        **table.fixed,
        "hidden_activation": _activation(data.get(activation_key, default_activation), activation_key, source),
        "position_offset": offset,
        "max_positions": positions,
        "initializer": table.initializer,
    }
    if table.read is not None:
        fields |= table.read(data, source)
    if table.grouped:
        layers = _read_integer({"num_hidden_layers": fields["num_layers"]}, "num_hidden_layers", 1, source)
        groups = _read_integer(data, "num_hidden_groups", 1, source)
        if not 1 <= groups <= layers <= MAX_LAYERS:
            raise ConversionError(
                f"{source}: {groups} num_hidden_groups in {layers} num_hidden_layers",
                allowed=f"1 to num_hidden_layers groups, at most {MAX_LAYERS} layers",
            )
        if groups < layers:
            fields |= {"sharing": "all", "num_groups": groups}
    fields |= {name: data[name] for name in _SHARING if name in data}
    architectures = data.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ConversionError(f"{source}: architectures is {architectures!r}", allowed="a list of names")
    try:
        config = validate(EncoderConfig, fields, source)
    except RecipeError as error:
        raise ConversionError(error.problem, hint="Check config.json against the weights beside it") from error
    for name, key in (*((name, key) for name, key, _ in table.fields), *((each, each) for each in _SHARING)):
        _check_type(data.get(key), getattr(config, name), f"{source}: {key}")
    _check_type(data.get("tie_word_embeddings"), True, f"{source}: tie_word_embeddings")
    length = _read_integer(data, _TRAINED_LENGTH, positions, source)
    if not _SHORTEST <= length <= positions:
        raise ConversionError(
            f"{source}: the longest sequence has {length} of {positions} positions", allowed=f"{_SHORTEST} or more"
        )
    return FolderConfig(
        config,
        vocab_size=_read_integer(data, "vocab_size", table.vocab_size, source),
        pad_token_id=pad,
        trained_length=length,
        pair_head=data.get(_PAIR_HEAD),
        # Their classes are RoBERTa's under another name.
        architectures=tuple(re.sub("^(XLMRoberta|Camembert)", "Roberta", name) for name in architectures),
        tied=data.get("tie_word_embeddings", True) is not False,
    )


def _read_integer(data: Mapping[str, Any], name: str, default: int, source: str) -> int:
    value = data.get(name)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ConversionError(f"{source}: {name} is {value!r}", allowed="a whole number below 2**31")
    return value


def _check_type(stated: object, read: object, entry: str) -> None:
    """Refuse 64.0 or "64" for 64: other programs do."""
    kind = type(read)
    if stated is not None and type(stated) not in ((int, float) if kind is float else (kind,)):
        raise ConversionError(f"{entry} is {stated!r}", allowed=f"a value of the type {kind.__name__}")


def _activation(name: str, field: str, source: str) -> str:
    for activation, saved_names in _ACTIVATIONS.items():
        if name in saved_names:
            return activation
    raise ConversionError(
        f"{source}: unknown {field} {name!r}",
        allowed=", ".join(name for names in _ACTIVATIONS.values() for name in names),
    )
