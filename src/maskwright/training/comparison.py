"""Two encoders side by side: in which fields of their shapes they must agree and do not, and how that is told."""

from collections.abc import Mapping
from typing import Any

from maskwright.model.config import EncoderConfig

Differences = Mapping[str, tuple[Any, Any]]
"""By field, this side's value and that side's."""

_SHARING = ("sharing", "num_groups", "blocks_per_group")
_SHAPES = ("hidden_size", "num_layers", "num_heads", "intermediate_size", "type_vocab_size", "position_offset")


def differences(mine: EncoderConfig, theirs: EncoderConfig) -> dict[str, tuple[Any, Any]]:
    """Name what must agree where weights are taken over, and does not.

    Args:
        mine: The encoder that takes them.
        theirs: The encoder that has them.
    """
    pairs: dict[str, tuple[Any, Any]] = {field: (getattr(mine, field), getattr(theirs, field)) for field in _SHAPES}
    # None goes with the hidden size, which is named if it differs.
    pairs["embedding_size"] = mine.embedding_size or theirs.hidden_size, theirs.embedding_width
    pairs["embedding_projection"] = mine.projects_embeddings, theirs.projects_embeddings
    different = {field: values for field, values in pairs.items() if values[0] != values[1]}
    if "embedding_projection" in different:
        different["embedding_projection"] = mine.embedding_projection, theirs.embedding_projection
        if mine.embedding_projection == theirs.embedding_projection:
            del different["embedding_projection"]  # It follows from the widths, which are named.
    if "num_layers" not in different and any(
        mine.layer_plan(part) != theirs.layer_plan(part) for part in ("attention", "ffn")
    ):
        # Whatever way it is said, each layer must use the block that it used. It is told in the model's way.
        ways: dict[str, tuple[Any, Any]] = {field: (getattr(mine, field), getattr(theirs, field)) for field in _SHARING}
        if theirs.sharing == "none":
            ways["attention_plan"] = mine.layer_plan("attention"), theirs.layer_plan("attention")
            ways["ffn_plan"] = mine.layer_plan("ffn"), theirs.layer_plan("ffn")
        else:
            ways |= {field: (getattr(mine, field), None) for field in ("attention_plan", "ffn_plan")}
        # A plan is named also where only the other one differs: both together say which block a layer uses.
        different |= {
            field: values
            for field, values in ways.items()
            if values[0] != values[1] or (field.endswith("_plan") and theirs.sharing == "none")
        }
    return different


def differences_of_layers(mine: EncoderConfig, theirs: EncoderConfig) -> dict[str, tuple[Any, Any]]:
    """Name what must agree where a student takes some of a teacher's layers, and does not.

    Args:
        mine: The student.
        theirs: The teacher. Which of its layers are taken is chosen, and a student without segments leaves those.
    """
    ignored = {"num_layers", "attention_plan", "ffn_plan", *_SHARING}
    if not mine.type_vocab_size:
        ignored.add("type_vocab_size")
    return {field: values for field, values in differences(mine, theirs).items() if field not in ignored}


def told(different: Differences) -> str:
    """Say in words what differs."""
    return "; ".join(f"encoder.{field} is {mine}, the model's {theirs}" for field, (mine, theirs) in different.items())


def settings(different: Differences) -> str:
    """Write the options that make this side equal that side."""
    return " ".join(f"--set {_setting(field, theirs)}" for field, (_, theirs) in different.items())


def _setting(field: str, value: Any) -> str:
    if isinstance(value, tuple):
        return f"'encoder.{field}={list(value)}'"
    return f"encoder.{field}={'null' if value is None else value}"
