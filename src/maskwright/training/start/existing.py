"""Existing models for `--init` or as teachers, and how their shapes differ from a recipe's."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from maskwright.checkpoints.checkpoint import Checkpoint, EncoderWithHeads, read_checkpoint
from maskwright.model.config import EncoderConfig

if TYPE_CHECKING:
    from maskwright.recipes.recipe import Recipe


def open_existing(name: str) -> Checkpoint:
    """Read a run directory, a Hugging Face directory or a hub name, with a row for each entry of its tokenizer.

    Raises ConversionError if there is no such model, or its tokenizer has more entries than its weights; DataError if
    its tokenizer cannot be read.
    """
    return read_checkpoint(name).trimmed()


def build_teacher(model: Checkpoint, recipe: "Recipe") -> EncoderWithHeads:
    """Build the teacher of a recipe from a model: its encoder without pooler and, if it has one, its masked-token head.

    For sentence vectors it also has the linear layer after the pooling, or the identity.

    The teacher of a student without segments gets segment 0 for every token (distillation: distiller.py).
    """
    from maskwright.pretext.objectives import SentenceVectors

    built = replace(model, config=model.config.replace(pooler=False)).build()
    heads = {kind: head for kind, head in built.heads.items() if kind == "mlm"}
    for objective in recipe.objectives:
        if isinstance(objective, SentenceVectors):
            heads[objective.kind] = model.modules.dense_after(objective.pooling or "mean") or nn.Identity()
    return EncoderWithHeads(built.encoder, heads, sees_segments=recipe.encoder.type_vocab_size > 1)


Differences = Mapping[str, tuple[Any, Any]]
"""By field, the recipe's value and the model's."""

_SHARING = ("sharing", "num_groups", "blocks_per_group")
_SHAPES = (
    *("hidden_size", "num_layers", "num_heads", "intermediate_size", "type_vocab_size", "position_offset"),
    *("positions", "norm_placement", "first_attention_norm", "norm_bias", "dense_bias", "feed_forward"),
)


def differences(config: EncoderConfig, source_config: EncoderConfig) -> dict[str, tuple[Any, Any]]:
    """Return the fields that must agree to load all weights of `source_config` into `config`, and do not."""
    names = list(_SHAPES)
    if config.num_layers == source_config.num_layers and any(
        config.layer_plan(part) != source_config.layer_plan(part) for part in ("attention", "ffn")
    ):
        names += _SHARING  # Each layer must use the block that it used before.
    # It may follow from the widths, which are listed.
    if config.projects_embeddings != source_config.projects_embeddings:
        names.append("embedding_projection")
    pairs: dict[str, tuple[Any, Any]] = {name: (getattr(config, name), getattr(source_config, name)) for name in names}
    # None means the hidden size, which is listed if it differs.
    pairs["embedding_size"] = config.embedding_size or source_config.hidden_size, source_config.embedding_width
    return {name: values for name, values in pairs.items() if values[0] != values[1]}


def differences_of_layers(config: EncoderConfig, source_config: EncoderConfig) -> dict[str, tuple[Any, Any]]:
    """Return the fields that must agree to load some of a teacher's layers into a student, and do not."""
    ignored = {"num_layers", *_SHARING}
    if not config.type_vocab_size:
        ignored.add("type_vocab_size")  # A student without segments ignores the teacher's.
    return {field: values for field, values in differences(config, source_config).items() if field not in ignored}


_PROJECTED = ("hidden_size", "num_heads", "intermediate_size")


def is_projected(config: EncoderConfig, source_config: EncoderConfig) -> bool:
    """Return whether a student's layers are projected from its teacher's: they are smaller and otherwise alike."""
    return (
        config.hidden_size <= source_config.hidden_size
        and config.intermediate_size <= source_config.intermediate_size
        and any(getattr(config, field) != getattr(source_config, field) for field in _PROJECTED)
        and config.head_size == source_config.head_size
        and not (config.projects_embeddings or source_config.projects_embeddings)
        and (config.norm_placement, config.positions, config.feed_forward) == ("post", "absolute", "dense")
        and (config.dense_bias, config.norm_bias) == (True, True)
        and config.attention_window is None
        and source_config.attention_window is None
        and not differences_of_layers(config, source_config).keys() - {*_PROJECTED, "embedding_size"}
    )


def describe_differences(different: Differences) -> str:
    return "; ".join(
        f"encoder.{field} is {value}, the model's {source}" for field, (value, source) in different.items()
    )


def settings(different: Differences) -> str:
    """Return the options that give the recipe the model's values."""
    return " ".join(f"--set encoder.{field}={source}" for field, (_, source) in different.items())


def parts_of(names: Iterable[str], on_generator: Collection[str] = ()) -> set[str]:
    """Return the parts of a model that some weights belong to, in words."""
    parts = set()
    for name in names:
        module, _, rest = name.partition(".")
        inner = rest.partition(".")[0]
        if module == "heads":
            parts.add(("generator's " if name in on_generator else "") + f"head {inner!r}")
        elif module in ("head", "generator"):
            parts.add(module)
        else:
            named = {"pooler": "pooler", "segment_embeddings": "segments"}
            parts.add("layers" if "_blocks." in rest else named.get(inner, "embeddings"))
    return parts
