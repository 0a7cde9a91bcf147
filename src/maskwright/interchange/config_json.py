"""A model folder's config.json and our `EncoderConfig`: one table, both ways."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.core.errors import ConversionError, RecipeError
from maskwright.core.spec import validate
from maskwright.core.types import SpecialTokens
from maskwright.encoder.config import EncoderConfig
from maskwright.interchange.names import Family

# (ours, theirs, what Hugging Face's classes assume where the file does not say)
_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("hidden_size", "hidden_size", 768),
    ("num_layers", "num_hidden_layers", 12),
    ("num_heads", "num_attention_heads", 12),
    ("intermediate_size", "intermediate_size", 3072),
    ("type_vocab_size", "type_vocab_size", 2),
    ("layer_norm_eps", "layer_norm_eps", 1e-12),
    ("hidden_dropout", "hidden_dropout_prob", 0.1),
    ("attention_dropout", "attention_probs_dropout_prob", 0.1),
    ("initializer_range", "initializer_range", 0.02),
)

# The first name of each of ours is the one written. "gelu_pytorch_tanh" is the same kernel as ours, bit for
# bit; the others are the same function with other roundings.
_ACTIVATIONS = {
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"),
    "gelu": ("gelu", "gelu_python"),
    "relu": ("relu",),
}

# What Hugging Face's format has no field for; its classes keep such entries and write them again.
_PLANS = ("attention_plan", "ffn_plan")
_TRAINED_LENGTH = "trained_length"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """How a family's config.json differs from the others'.

    Attributes:
        vocab_size: What Hugging Face's class assumes.
        pad_token_id: Likewise.
        positions_after_pad: Whether positions are counted from the padding id + 1 (RoBERTa).
        initializer: Not in the file: what the original used.
        head_activation: The one activation that the class's masked-token head has, whatever the file says;
            None where the head follows the file.
    """

    vocab_size: int
    pad_token_id: int
    positions_after_pad: bool
    initializer: str
    head_activation: str | None


_TABLES = {
    "bert": ConfigTable(
        vocab_size=30522,
        pad_token_id=0,
        positions_after_pad=False,
        initializer="truncated_normal",
        head_activation=None,
    ),
    "roberta": ConfigTable(
        vocab_size=50265,
        pad_token_id=1,
        positions_after_pad=True,
        initializer="normal",
        head_activation="gelu",
    ),
}


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """What a config.json says.

    Attributes:
        config: The shape; whether there is a pooler, only the weights tell.
        vocab_size: V.
        pad_token_id: The padding id.
        trained_length: Longest sequence the model was trained on, as far as the file tells, in tokens.
    """

    config: EncoderConfig
    vocab_size: int
    pad_token_id: int
    trained_length: int


def to_json(
    family: Family,
    config: EncoderConfig,
    special_tokens: SpecialTokens,
    heads: frozenset[str],
    trained_length: int,
) -> dict[str, Any]:
    """Write an encoder's shape as the config.json of its family.

    Args:
        family: The tables.
        config: The shape.
        special_tokens: Padding id and vocabulary size; for RoBERTa also the ends of a sequence.
        heads: Which heads the folder holds.
        trained_length: Longest sequence trained on, in tokens.

    Raises:
        ConversionError: If the family's classes cannot express the shape.
    """
    refuse_inexpressible(family, config, special_tokens.pad, heads)
    table = _TABLES[family.name]
    data: dict[str, Any] = {
        "architectures": [family.architecture(heads)],
        "model_type": family.name,
        "vocab_size": special_tokens.vocab_size,
        **{theirs: getattr(config, ours) for ours, theirs, _ in _FIELDS},
        "hidden_act": _ACTIVATIONS[config.hidden_activation][0],
        "max_position_embeddings": config.max_positions + config.position_offset,
        "pad_token_id": special_tokens.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
        _TRAINED_LENGTH: trained_length,
    }
    if table.positions_after_pad:
        data |= {"bos_token_id": special_tokens.cls, "eos_token_id": special_tokens.sep}
    return data | {name: list(plan) for name in _PLANS if (plan := getattr(config, name)) is not None}


def refuse_inexpressible(
    family: Family, config: EncoderConfig, pad: int, heads: frozenset[str], source: str = ""
) -> None:
    """Refuse a model that the family's Hugging Face classes cannot hold. Ask before training, too.

    Args:
        family: The tables.
        config: The encoder's shape.
        pad: The padding id.
        heads: Kinds of the heads.
        source: The file that asks for it, if it was read from one.

    Raises:
        ConversionError: If the folder would not load, or compute something else there.
    """
    table = _TABLES[family.name]
    where, classes = f"{source}: " if source else "", f"Hugging Face's {family.name!r} classes"
    for field, allowed, reason in (
        ("embedding_size", {None, config.hidden_size}, "they have no dense layer after the embeddings"),
        ("position_offset", {_offset(table, pad)}, "their position table begins there"),
        ("type_vocab_size", {max(config.type_vocab_size, 1)}, "they have a segment table"),
        ("hidden_activation", _activations(table, heads), "their masked-token head has no other"),
    ):
        found = getattr(config, field)
        if found not in allowed:
            needed = ", ".join(str(value) for value in allowed if value is not None)
            raise ConversionError(
                f"{where}{classes} cannot hold an encoder with {field} {found}: {reason}",
                allowed=f"{field} {needed}",
                todo=f"Set encoder.{field} to {needed} or choose another family",
            )
    if strangers := sorted(heads - family.heads.keys()):
        raise ConversionError(
            f"{where}{classes} have no names for the head {', '.join(strangers)}",
            allowed=", ".join(sorted(family.heads)),
            todo="Drop that objective or choose another family",
        )


def _offset(table: ConfigTable, pad: int) -> int:
    return pad + 1 if table.positions_after_pad else 0


def _activations(table: ConfigTable, heads: frozenset[str]) -> set[str]:
    return {table.head_activation} if table.head_activation and "mlm" in heads else set(_ACTIVATIONS)


def from_json(family: Family, data: Mapping[str, Any], source: str) -> FolderConfig:
    """Read an encoder's shape from the config.json of its family.

    Args:
        family: The tables.
        data: The file's content.
        source: The file's path, for messages.

    Raises:
        ConversionError: If the file asks for something that no encoder here does, or its numbers do not fit.
    """
    table = _TABLES[family.name]
    for name, allowed in (
        ("is_decoder", False),
        ("add_cross_attention", False),
        ("position_embedding_type", "absolute"),
    ):
        if data.get(name, allowed) != allowed:
            raise ConversionError(
                f"{source}: {name} is {data[name]!r}, which no encoder of this family has",
                allowed=f"{name} {allowed!r}",
            )
    pad = _whole(data, "pad_token_id", table.pad_token_id, source)
    offset = _offset(table, pad)
    positions = _whole(data, "max_position_embeddings", 512, source) - offset
    fields = {
        **{ours: data.get(theirs, default) for ours, theirs, default in _FIELDS},
        "hidden_activation": _activation(data.get("hidden_act", "gelu"), source),
        "position_offset": offset,
        "max_positions": positions,
        "initializer": table.initializer,
        **{name: data[name] for name in _PLANS if name in data},
    }
    try:
        config = validate(EncoderConfig, fields, source)
    except RecipeError as error:
        raise ConversionError(error.problem, todo="Check config.json against the weights beside it") from error
    return FolderConfig(
        config,
        vocab_size=_whole(data, "vocab_size", table.vocab_size, source),
        pad_token_id=pad,
        trained_length=_whole(data, _TRAINED_LENGTH, positions, source),
    )


def _whole(data: Mapping[str, Any], name: str, default: int, source: str) -> int:
    found = data.get(name)
    if found is None:
        return default
    if not isinstance(found, int) or found < 0:
        raise ConversionError(f"{source}: {name} is {found!r}", allowed="a whole number")
    return found


def _activation(name: str, source: str) -> str:
    for ours, theirs in _ACTIVATIONS.items():
        if name in theirs:
            return ours
    raise ConversionError(
        f"{source}: unknown hidden_act {name!r}",
        allowed=", ".join(name for names in _ACTIVATIONS.values() for name in names),
    )
