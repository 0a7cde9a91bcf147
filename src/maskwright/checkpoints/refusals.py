"""Check whether a family's Hugging Face classes can hold a model: before training and at every save.

The encoder must compute the same there. A head that no class has is saved under names that the classes ignore; a head
that another family has classes for is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwright.checkpoints.families import FAMILIES, Family
from maskwright.core.errors import ConversionError
from maskwright.model.config import EncoderConfig


def refuse_inexpressible(
    family: Family, config: EncoderConfig, pad: int, heads: frozenset[str], source: str = ""
) -> None:
    """Raise ConversionError if the family's Hugging Face classes cannot hold an encoder with these heads.

    The message names the field, its allowed values, and the families that can hold the model. `pad` is the padding id,
    `source` the file that was read, if any.
    """
    if (obstacle := next(_obstacles(family, config, pad, heads), None)) is None:
        return
    problem, allowed, remedy = obstacle
    if source:
        raise ConversionError(
            f"{source}: {problem}", allowed=allowed, hint="Check the file against the weights beside it"
        )
    others = [name for name, other in FAMILIES.items() if next(_obstacles(other, config, pad, heads), None) is None]
    named = " or ".join(name for name in others if name != "maskwright")
    if not named and others:
        named = "maskwright, which maskwright reads and transformers does not"
    hint = remedy + (f", or set family to {named}" if named else "")
    raise ConversionError(problem, allowed=allowed, hint=hint)


def refuse_other_entries(data: Mapping[str, Any], allowed: Mapping[str, Any], source: str) -> None:
    """Raise ConversionError if an entry of the config.json at `source` has another value than the allowed one."""
    for name, value in allowed.items():
        if data.get(name, value) != value:
            raise ConversionError(
                f"{source}: {name} is {data[name]!r}, which maskwright does not support",
                allowed=f"{name} {value!r}",
                hint="Use transformers for this model, or choose another",
            )


def position_offset(family: Family, pad: int) -> int:
    """Return how many rows at the start of a family's position table are unused."""
    return pad + 1 if family.config.positions_after_pad else 0


_CHOICES = (
    *("positions", "attention_window", "norm_placement", "first_attention_norm", "norm_bias", "dense_bias"),
    "feed_forward",
)
"""Fields for which most families have the value of `EncoderConfig`'s default only."""


def _obstacles(
    family: Family, config: EncoderConfig, pad: int, heads: frozenset[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (problem, what is allowed, remedy)."""
    classes = f"Hugging Face's {family.name!r} classes"
    for field, allowed, reason in _limits(family, config, pad, heads):
        if (number := getattr(config, field)) not in allowed:
            needed = f"{field} {', '.join(_shown(value) for value in allowed if value is not None)}"
            yield (
                f"{classes} cannot hold an encoder with {field} {_shown(number)}: {reason}",
                needed,
                f"Set encoder.{needed.replace(' ', ' to ', 1)}",
            )
    elsewhere = {head for other in FAMILIES.values() for needed, _ in other.architectures for head in needed}
    if unnamed := sorted((heads & elsewhere) - family.heads.keys()):
        problem = f"{classes} have no names for the head {', '.join(unnamed)}"
        yield problem, ", ".join(family.heads), "Drop that objective"
    for kind in sorted(heads & family.heads.keys()):
        if len(twins := sorted(heads.intersection(family.same_names(kind)))) > 1:
            problem = f"{classes} have one name for the heads {' and '.join(twins)}"
            yield problem, "one of them", "Drop one of the two objectives"


def _limits(
    family: Family, config: EncoderConfig, pad: int, heads: frozenset[str]
) -> Iterator[tuple[str, tuple[Any, ...], str]]:
    """List (field, allowed values, why no other)."""
    table = family.config
    for field in _CHOICES:
        if field not in table.fixed and field not in table.expresses:
            yield field, (EncoderConfig.model_fields[field].default,), "they compute no other"
    if not family.projection:
        yield "embedding_size", (None, config.hidden_size), "they have no dense layer after the embeddings"
    if not family.always_projects and "embedding_projection" not in table.expresses:
        yield "embedding_projection", ("if_needed",), "they have no dense layer between equal widths"
    if "position_offset" not in table.expresses:
        yield "position_offset", (position_offset(family, pad),), "their position table starts there"
    for field, value in table.fixed.items():
        yield field, (value,), "it is fixed there"
    if "type_vocab_size" not in table.fixed and "type_vocab_size" not in table.expresses:
        yield "type_vocab_size", (max(config.type_vocab_size, 1),), "they have a segment table"
    if not family.pooler:
        yield "pooler", (False,), "they have none"
    if "mlm" in heads and table.head_activation:
        yield "hidden_activation", (table.head_activation,), "their masked-token head supports no other"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
