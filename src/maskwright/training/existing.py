"""A trained model on disk as another run needs it, also as a teacher, and how its shape differs from a recipe's."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import build_modules, load_model
from maskwright.checkpoints.task_entries import TaskEntries
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.fields import member_of
from maskwright.core.files import checksum
from maskwright.core.spec import fingerprint
from maskwright.core.tensors import PackedBatch, View
from maskwright.core.types import FamilyName
from maskwright.data.tokenizers.extension import Extension
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives import Objective, ObjectiveChoice
from maskwright.recipes.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingModel:
    """A model directory that was read.

    Attributes:
        name: What the user called it.
        state: Weights in fp32 as "encoder.*" and "heads.KIND.*", with one row per entry of the tokenizer.
        fingerprint: Identifies config.json and the weights.
        max_length: Longest sequence of its training in tokens, as far as the directory says.
        task: Its head for labeled examples, if it has one.
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
        """Return the model with a row for each new entry: the mean of the rows of the pieces it replaces."""
        state = dict(self.state)
        for name in _vocabulary_weights(self.config, state):
            rows = state[name]
            means = [rows[list(pieces)].mean(dim=0, keepdim=True) for pieces in extension.pieces]
            state[name] = torch.cat([rows, *means])
        return replace(self, state=state, tokenizer=extension.tokenizer)

    def to_json(self) -> dict[str, str]:
        """Return what a run records."""
        return {"model": self.name, "family": self.family, "fingerprint": self.fingerprint}


def open_existing(name: str) -> ExistingModel:
    """Read a run directory, a Hugging Face directory or a hub name.

    Raises ConversionError if there is no such model, or its tokenizer has more entries than its weights; DataError if
    its tokenizer cannot be read.
    """
    loaded = load_model(name)
    tokenizer = loaded.read_tokenizer()
    entries = tokenizer.special_tokens.vocab_size
    # Some tables are longer than the vocabulary (ERNIE's: 18,000 rows for 17,964 entries).
    rows = _vocabulary_weights(loaded.config, loaded.state)
    state = {key: tensor[:entries] if key in rows else tensor for key, tensor in loaded.state.items()}
    files = (loaded.folder / "config.json", loaded.folder / WEIGHTS)
    return ExistingModel(
        name=name,
        folder=loaded.folder,
        family=loaded.family,
        config=loaded.config,
        state=state,
        tokenizer=tokenizer,
        fingerprint=fingerprint({file.name: checksum(file) for file in files}),
        max_length=loaded.max_length,
        task=loaded.task,
    )


def _vocabulary_weights(config: EncoderConfig, names: Collection[str]) -> set[str]:
    """Return the weights with one row per vocabulary entry: those whose shape in the head depends on its size."""
    found = {"encoder.word_embeddings.weight"}
    for kind in {name.split(".")[1] for name in names if name.startswith("heads.")}:
        member = member_of(ObjectiveChoice, kind)
        if member is None:
            continue  # A head that no objective here uses.
        objective = cast(Objective, member())
        with torch.device("meta"):
            small, large = (objective.head(config.head_shape(size)).state_dict() for size in (1, 2))
        found |= {f"heads.{kind}.{name}" for name in small if small[name].shape != large[name].shape}
    return found & set(names)


class TeacherModel:
    """An encoder with the heads that turn its hidden states into scores; never trained, never saved.

    Unless it `sees_segments`, all tokens are of segment 0.
    """

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module], sees_segments: bool = True) -> None:
        self.encoder = encoder.eval().requires_grad_(False)
        self.heads = {kind: head.eval().requires_grad_(False) for kind, head in heads.items()}
        self.sees_segments = sees_segments

    def to(self, device: torch.device) -> "TeacherModel":
        """Move it to a device, in place."""
        for module in (self.encoder, *self.heads.values()):
            module.to(device)
        return self

    def view(self, batch: PackedBatch) -> View:
        """Encode a batch, without gradient."""
        if not self.sees_segments:
            batch = replace(batch, segment_ids=torch.zeros_like(batch.segment_ids))
        with torch.no_grad():
            output = self.encoder(batch)
        return View(ids=batch.ids, output=output, word_embeddings=self.encoder.word_embeddings.weight, heads=self.heads)


def build_teacher(model: ExistingModel, recipe: Recipe) -> TeacherModel:
    """Build the teacher of a recipe from a model: its encoder without pooler and, if it has one, its masked-token head.

    The teacher of a student without segments gets segment 0 for every token (distillation: distiller.py).
    """
    config, vocab_size = model.config.replace(pooler=False), model.tokenizer.special_tokens.vocab_size
    encoder, heads = build_modules(config, vocab_size, model.state)
    mlm = {kind: head for kind, head in heads.items() if kind == "mlm"}
    return TeacherModel(encoder, mlm, sees_segments=recipe.encoder.type_vocab_size > 1)


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


def describe_differences(different: Differences) -> str:
    """Return the differences in words."""
    return "; ".join(
        f"encoder.{field} is {value}, the model's {source}" for field, (value, source) in different.items()
    )


def settings(different: Differences) -> str:
    """Return the options that give the recipe the model's values."""
    return " ".join(f"--set encoder.{field}={source}" for field, (_, source) in different.items())
