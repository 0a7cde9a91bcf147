"""A trained model on disk, as far as another run needs it: its shape, its weights, its tokenizer, and which it is."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from maskwright.core.errors import ConversionError
from maskwright.core.fields import member_of
from maskwright.core.files import checksum
from maskwright.core.spec import fingerprint
from maskwright.core.types import FamilyName
from maskwright.data.tokenizers.extension import Extension
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.huggingface.huggingface import load_model
from maskwright.huggingface.task_entries import TaskEntries
from maskwright.huggingface.weight_files import WEIGHTS
from maskwright.model.config import EncoderConfig
from maskwright.pretext.objectives import Objective, ObjectiveChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingModel:
    """A model folder that was read. Its weights have a row for each entry of its tokenizer, and no more.

    Attributes:
        name: How the user named it.
        folder: Where it lies.
        family: Hugging Face's model type.
        config: The encoder's shape.
        state: Weights in fp32 as "encoder.*" and "heads.KIND.*".
        tokenizer: Its tokenizer.
        fingerprint: Identifies what it computes: config.json and the weights' files.
        max_length: Longest sequence it was trained on, as far as the folder tells, in tokens.
        task: Its head for labeled examples; None where it has none.
    """

    name: str
    folder: Path
    family: FamilyName
    config: EncoderConfig
    state: dict[str, Tensor]
    tokenizer: Tokenizer
    fingerprint: str
    max_length: int
    task: TaskEntries | None

    def extended(self, extension: Extension) -> "ExistingModel":
        """Return the model with a row for each new entry: the mean of the rows of the pieces it was written with."""
        state = dict(self.state)
        for name in _with_a_row_an_entry(self.config, state):
            rows = state[name]
            means = [rows[list(pieces)].mean(dim=0, keepdim=True) for pieces in extension.pieces]
            state[name] = torch.cat([rows, *means])
        return replace(self, state=state, tokenizer=extension.tokenizer)

    def to_json(self) -> dict[str, str]:
        """Return what a run's record says of it."""
        return {"model": self.name, "family": self.family, "fingerprint": self.fingerprint}


def open_existing(name: str) -> ExistingModel:
    """Read a run's folder, a Hugging Face folder or a hub name.

    Raises:
        ConversionError: If there is no such model, or it does not fit together.
        DataError: If its tokenizer cannot be read.
    """
    loaded = load_model(name)
    tokenizer = Tokenizer.from_folder(loaded.folder)
    entries = tokenizer.special_tokens.vocab_size
    if entries > loaded.vocab_size:
        raise ConversionError(
            f"the tokenizer in {loaded.folder} has {entries} entries, the weights beside it have embeddings for "
            f"{loaded.vocab_size}",
            todo="Use the tokenizer that the model was trained with.",
        )
    # Some tables are longer than the vocabulary (ERNIE's: 18,000 rows for 17,964 entries); nothing stands for those.
    rows = _with_a_row_an_entry(loaded.config, loaded.state)
    state = {key: tensor[:entries] if key in rows else tensor for key, tensor in loaded.state.items()}
    if not loaded.has_standard_mlm:  # No recipe trains such a head: with a tied matrix it would predict something else.
        state = {key: tensor for key, tensor in state.items() if not key.startswith("heads.mlm.")}
    return ExistingModel(
        name=name,
        folder=loaded.folder,
        family=loaded.family,
        config=loaded.config,
        state=state,
        tokenizer=tokenizer,
        fingerprint=_fingerprint(loaded.folder),
        max_length=loaded.max_length,
        task=loaded.task,
    )


def _with_a_row_an_entry(config: EncoderConfig, names: Collection[str]) -> set[str]:
    """Return which weights have one row for each entry of the vocabulary.

    The heads themselves are asked, with two sizes of the vocabulary: what is longer with the larger one has.
    """
    found = {"encoder.word_embeddings.weight"}
    for kind in {name.split(".")[1] for name in names if name.startswith("heads.")}:
        member = member_of(ObjectiveChoice, kind)
        if member is None:
            continue  # A head that no objective here ever asks for.
        objective = cast(Objective, member())
        with torch.device("meta"):
            small, large = (objective.head(config.head_shape(size)).state_dict() for size in (1, 2))
        found |= {f"heads.{kind}.{name}" for name in small if small[name].shape != large[name].shape}
    return found & set(names)


def _fingerprint(folder: Path) -> str:
    weights = [folder / WEIGHTS] if (folder / WEIGHTS).exists() else sorted(folder.glob("*.safetensors"))
    return fingerprint({file.name: checksum(file) for file in (folder / "config.json", *weights)})


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
