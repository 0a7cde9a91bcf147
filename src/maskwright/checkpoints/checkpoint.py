"""Read and write model folders as Hugging Face's classes do: the only module that does either."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from maskwright.checkpoints.config_json import from_json, to_json
from maskwright.checkpoints.families import Family, family_named
from maskwright.checkpoints.location import GENERATOR, locate
from maskwright.checkpoints.refusals import refuse_inexpressible
from maskwright.checkpoints.sentence_folder import (
    SentenceModules,
    finish_sentence_folder,
    read_sentence_modules,
    write_sentence_modules,
)
from maskwright.checkpoints.task_entries import TaskEntries, entries_from_json
from maskwright.checkpoints.weight_files import WEIGHTS, read_config, read_weights
from maskwright.core.errors import ConversionError
from maskwright.core.fields import member_of
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import atomic_path, checksum, records_of, write_json
from maskwright.core.storage.tensor_files import write_tensors
from maskwright.core.tensors import EncodedBatch, PackedBatch
from maskwright.core.text.amounts import listed
from maskwright.core.types import FamilyName, SpecialTokens
from maskwright.data.tokenizers.extension import Extension
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.pretext.objectives import (
    MaskedLanguageModeling,
    NextSentencePrediction,
    Objective,
    ObjectiveChoice,
    ReplacedTokenDetection,
    SentenceOrderPrediction,
)

_EXTRA_HEADS = "maskwright.heads."
"""Prefix of heads that no family has names for; Hugging Face's classes ignore them."""
_OLD_ENDS = ((".gamma", ".weight"), (".beta", ".bias"))
_NAMES_SHOWN = 6
# Objectives whose heads have one shape; the shapes of other heads depend on their recipes and are checked there.
_OBJECTIVES = (MaskedLanguageModeling(), NextSentencePrediction(), SentenceOrderPrediction(), ReplacedTokenDetection())


@dataclass(eq=False)
class EncoderWithHeads:
    """An encoder with the heads that it has, by kind, for inference and for teaching: no dropout, no gradients.

    It is no module, so that a model that learns from it neither trains nor saves it. Without `sees_segments` all tokens
    are of segment 0.
    """

    encoder: Encoder
    heads: dict[str, nn.Module] = field(default_factory=dict)
    sees_segments: bool = True

    def __post_init__(self) -> None:
        for module in (self.encoder, *self.heads.values()):
            module.eval().requires_grad_(False)

    def to(self, device: torch.device) -> "EncoderWithHeads":
        for module in (self.encoder, *self.heads.values()):
            module.to(device)
        return self

    def encode_batch(self, batch: PackedBatch, qkv_layer: int | None = None) -> EncodedBatch:
        """Encode a batch, without gradient; `qkv_layer` as for `Encoder`."""
        if not self.sees_segments:
            batch = replace(batch, segment_ids=torch.zeros_like(batch.segment_ids))
        with torch.no_grad():
            output = self.encoder(batch, qkv_layer=qkv_layer)
        return EncodedBatch(
            ids=batch.ids, output=output, word_embeddings=self.encoder.word_embeddings.weight, heads=self.heads
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """A model folder: config.json and the weights, read once; the tokenizer and other files, read at their first use.

    Attributes:
        name: What the user called it.
        family: Whose classes have this architecture.
        config: The encoder's shape; with a pooler if the folder has one.
        vocab_size: Rows of the word embeddings; some models have more than the tokenizer has entries.
        max_length: Longest sequence of the training, in tokens, or the number of positions; not more than a folder of
            sentence-transformers reads.
        state: Weights in fp32 as "encoder.*" and "heads.KIND.*".
        heads: Kinds of the heads in `state`, e.g. ("mlm",) or ("sequence",). A masked-token head that no recipe could
            have trained is ignored: not tied to the word embeddings, or with another activation than the encoder.
        unexpected: Names in the file that are not used.
        task: The head among `heads` that was trained on labeled examples, if any.
        sentence_modules: What the folder computes from the hidden states; `modules` checks the size of its Dense.
        tokenizer_override: Used in place of the folder's; None for the folder's.
    """

    name: str
    folder: Path
    family: FamilyName
    config: EncoderConfig
    vocab_size: int
    max_length: int
    state: dict[str, Tensor]
    heads: tuple[str, ...]
    unexpected: tuple[str, ...]
    task: TaskEntries | None
    sentence_modules: SentenceModules
    tokenizer_override: Tokenizer | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises DataError if it cannot be read, ConversionError if it has more entries than the weights.
        """
        tokenizer = self.tokenizer_override or Tokenizer.from_folder(self.folder)
        if (entries := tokenizer.special_tokens.vocab_size) > self.vocab_size:
            raise ConversionError(
                f"the tokenizer in {self.folder} has {entries} entries, the weights beside it have embeddings for "
                f"{self.vocab_size}",
                hint="Use the tokenizer that the model was trained with.",
            )
        return tokenizer

    @cached_property
    def modules(self) -> SentenceModules:
        """Pooling and modules of a sentence-transformers folder; ConversionError if its Dense is of another model."""
        modules = self.sentence_modules
        if modules.dense is not None and modules.dense.in_features != self.config.hidden_size:
            raise ConversionError(
                f"the Dense module in {self.folder} is for vectors of {modules.dense.in_features}, the model's have "
                f"{self.config.hidden_size}",
                hint="Save or download it again",
            )
        return modules

    def to_sentence_transformer(self, folder: Path, modules: SentenceModules) -> Any:
        """Write the model with these modules into a folder; return the SentenceTransformer, on the CPU."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Transformer

        with records_of(self.folder, "a file for transformers"):
            Transformer(str(self.folder)).save(str(folder))
        write_sentence_modules(folder, modules, hidden_size=self.config.hidden_size, max_length=self.max_length)
        finish_sentence_folder(folder, self.tokenizer, self.max_length)
        return SentenceTransformer(str(folder), device="cpu")

    @cached_property
    def fingerprint(self) -> str:
        """Identifies config.json and the weights."""
        files = (self.folder / "config.json", self.folder / WEIGHTS)
        return fingerprint({file.name: checksum(file) for file in files})

    @property
    def generator(self) -> Path | None:
        """The folder of ELECTRA's generator, if there is one."""
        folder = self.folder / GENERATOR
        return folder if (folder / "config.json").is_file() else None

    def to_json(self) -> dict[str, str]:
        return {"model": self.name, "family": self.family, "fingerprint": self.fingerprint}

    def build(self) -> "EncoderWithHeads":
        """Return the encoder, and by kind its heads among "mlm", "nsp", "sop" and "rtd".

        Nothing is copied, nor initialized at random, which would take seconds. Other weights in `state` are not used.
        """
        shape = self.config.head_shape(self.vocab_size)
        with torch.device("meta"):
            encoder, kinds = Encoder(self.config, self.vocab_size), _kinds(self.state)
            heads: dict[str, nn.Module] = {each.kind: each.head(shape) for each in _OBJECTIVES if each.kind in kinds}
        modules = nn.ModuleDict({"encoder": encoder, "heads": nn.ModuleDict(heads)})
        modules.load_state_dict({name: self.state[name] for name in modules.state_dict()}, assign=True)
        return EncoderWithHeads(encoder, heads)

    def trimmed(self) -> "Checkpoint":
        """Return the model without rows that the tokenizer has no entry for (ERNIE's: 18,000 rows for 17,964)."""
        entries, rows = self.tokenizer.special_tokens.vocab_size, _vocabulary_weights(self.config, self.state)
        state = {name: tensor[:entries] if name in rows else tensor for name, tensor in self.state.items()}
        return self._with_rows(state, self.tokenizer)

    def extended(self, extension: Extension) -> "Checkpoint":
        """Return the model with a row for each new entry: the mean of the rows of the pieces it replaces."""
        state = dict(self.state)
        for name in _vocabulary_weights(self.config, state):
            rows = state[name]
            means = [rows[list(pieces)].mean(dim=0, keepdim=True) for pieces in extension.pieces]
            state[name] = torch.cat([rows, *means])
        return self._with_rows(state, extension.tokenizer)

    def _with_rows(self, state: dict[str, Tensor], tokenizer: Tokenizer) -> "Checkpoint":
        size = tokenizer.special_tokens.vocab_size
        return replace(self, state=state, vocab_size=size, tokenizer_override=tokenizer)


def save_model(
    folder: Path,
    *,
    family: FamilyName,
    config: EncoderConfig,
    special_tokens: SpecialTokens,
    state: dict[str, Tensor],
    max_length: int,
    task: TaskEntries | None = None,
) -> None:
    """Write config.json and model.safetensors under the family's Hugging Face names, each complete or not at all.

    The tied output matrix is omitted, as in Hugging Face's files. Blocks that layers share are written once per layer,
    with the sharing in config.json, so that Hugging Face's classes compute the same; ALBERT's groups are written once
    per group, as its classes do. Other files in the folder are kept.

    Args:
        state: All weights, as "encoder.*" and "heads.KIND.*", on any device.
        max_length: Longest sequence of the training, in tokens.
        task: The head for labeled examples if `state` has one; it determines the class of the model.

    Raises ConversionError if the family's classes cannot hold this model, DeviceError if the folder cannot be written.
    """
    table = family_named(family)
    heads = _kinds(state)
    if heads & table.tasks.keys() != ({task.head} if task else set()):
        raise ValueError(f"the weights have the heads {sorted(heads)}, but the task is {task}")
    data = to_json(table, config, special_tokens, heads, max_length, task)
    prefix = table.prefix if heads else ""
    other_heads = tuple(f"heads.{kind}." for kind in heads - table.heads.keys() - table.tasks.keys())
    pairs = (
        *table.pairs(config, heads, prefix),
        *((name, _EXTRA_HEADS + name.removeprefix("heads.")) for name in state if name.startswith(other_heads)),
    )
    expected = {name for name, _ in pairs}
    if expected != state.keys():
        raise ConversionError(
            f"cannot save to {folder}: the weights do not fit the encoder's configuration; "
            f"missing {listed(sorted(expected - state.keys()), _NAMES_SHOWN) or 'nothing'}; "
            f"unknown {listed(sorted(state.keys() - expected), _NAMES_SHOWN) or 'nothing'}"
        )
    weights = {
        saved: state[name].detach().to("cpu", torch.float32, copy=True, memory_format=torch.contiguous_format)
        for name, saved in pairs
    }
    if table.always_projects and not config.projects_embeddings:
        identity = (torch.eye(config.hidden_size), torch.zeros(config.hidden_size))
        weights |= {prefix + saved: value for (_, saved), value in zip(table.projection, identity, strict=True)}
    weights = _join(weights, table)
    with atomic_path(folder / WEIGHTS) as temporary:
        write_tensors(temporary, weights, shown=folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / "config.json", data)


def read_checkpoint(folder_or_name: str | Path) -> Checkpoint:
    """Read a model folder, or download a model by its hub name. No code of the folder is executed.

    Old names (gamma, beta), unprefixed bare models and half precision are accepted.

    Raises ConversionError if something is missing, damaged, of another shape than config.json states, or not supported
    by the encoder. The message names file, weight, shapes and remedy.
    """
    folder = locate(folder_or_name)
    data = read_config(folder)
    source = str(folder / "config.json")
    family = family_named(data["model_type"], source)
    described = from_json(family, data, source)
    tensors = _split(_modern_names(read_weights(folder), folder), family)
    prefix = family.prefix if any(name.startswith(family.prefix) for name in tensors) else ""
    is_tied = _drop_second_names(tensors, family, prefix) and described.tied
    config = _without_identity(tensors, family, described.config, prefix)
    names = frozenset(tensors)
    config = config.replace(pooler=any(prefix + saved in names for _, saved in family.pooler))
    heads = family.heads_among(names, described.pair_head)
    if not is_tied or family.config.head_activation not in (None, config.hidden_activation):
        heads -= {"mlm"}
    head = family.task_among(names, described.architectures)
    task = None if head is None else entries_from_json(family, data, head, config.hidden_dropout, source)
    if task is not None:
        heads |= {task.head}
    refuse_inexpressible(family, config, described.pad_token_id, heads, source)
    pairs = (
        *family.pairs(config, heads, prefix),
        *(
            ("heads." + name.removeprefix(_EXTRA_HEADS), name)
            for name in sorted(names)
            if name.startswith(_EXTRA_HEADS)
        ),
    )
    used = {saved for _, saved in pairs}
    if missing := used - names:
        raise ConversionError(
            f"the weights in {folder} lack {listed(sorted(missing), _NAMES_SHOWN)}, which {source} requires",
            hint="Check num_hidden_layers and model_type there, or download the weights again",
        )
    state: dict[str, Tensor] = {}
    for name, saved in pairs:
        if name in state and not torch.equal(state[name], tensors[saved]):
            raise ConversionError(
                f"{source} states that layers share weights, but {saved} differs between them",
                hint="Remove sharing, num_groups and blocks_per_group from config.json to load every layer separately",
            )
        state[name] = tensors[saved]
    modules = read_sentence_modules(folder)
    loaded = Checkpoint(
        name=str(folder_or_name),
        family=family.name,
        config=config,
        vocab_size=described.vocab_size,
        max_length=min(described.trained_length, modules.max_length or described.trained_length),
        state=state,
        heads=tuple(sorted(_kinds(state))),
        unexpected=tuple(sorted(names - used)),
        folder=folder,
        task=task,
        sentence_modules=modules,
    )
    _check_shapes(loaded, family, dict(pairs))
    starts = tuple({prefix + theirs.partition("{n}")[0] for _, theirs in family.body if "{n}" in theirs})
    if layers := {name for name in loaded.unexpected if name.startswith(starts)}:
        raise ConversionError(
            f"the weights in {folder} have more layers than {source} states: {listed(sorted(layers), _NAMES_SHOWN)}",
            hint="Correct num_hidden_layers there, or download both files again",
        )
    return loaded


def _vocabulary_weights(config: EncoderConfig, names: Collection[str]) -> set[str]:
    """Return the weights with one row per vocabulary entry: those whose shape in the head depends on its size."""
    weights = {"encoder.word_embeddings.weight"}
    for kind in _kinds(names):
        member = member_of(ObjectiveChoice, kind)
        if member is None:
            continue  # A head that no objective here uses.
        objective = cast(Objective, member())
        with torch.device("meta"):
            small, large = (objective.head(config.head_shape(size)).state_dict() for size in (1, 2))
        weights |= {f"heads.{kind}.{name}" for name in small if small[name].shape != large[name].shape}
    return weights & set(names)


def _kinds(state: Iterable[str]) -> frozenset[str]:
    return frozenset(name.split(".")[1] for name in state if name.startswith("heads."))


def _join(weights: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Concatenate the weights that are one in the family's classes (`Family.fused`)."""
    joined = dict(weights)
    for module, (first, *others) in family.fused:
        for name in weights:
            start, is_fused, kind = name.rpartition(f"{module}.{first}.")
            if is_fused:
                parts = [joined.pop(f"{start}{module}.{part}.{kind}") for part in (first, *others)]
                joined[f"{start}{module}.{kind}"] = torch.cat(parts)
    return joined


def _split(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Undo `_join`."""
    split = dict(tensors)
    for module, parts in family.fused:
        for name in tensors:
            start, is_fused, kind = name.rpartition(f"{module}.")
            if is_fused and kind in ("weight", "bias"):
                whole = split.pop(name)
                names = (f"{start}{module}.{part}.{kind}" for part in parts)
                split |= zip(names, whole.tensor_split(len(parts)), strict=True)
    return split


def _modern_names(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    renamed = dict(tensors)
    for old, new in _OLD_ENDS:
        for name in [name for name in tensors if name.endswith(old)]:
            modern = name.removesuffix(old) + new
            if modern in tensors:
                raise ConversionError(
                    f"the weights in {folder} have both {name} and {modern}, two names of one weight",
                    hint="Remove the one that was not trained, or download the weights again",
                )
            renamed[modern] = renamed.pop(name)
    return renamed


def _drop_second_names(tensors: dict[str, Tensor], family: Family, prefix: str) -> bool:
    """Remove second names of tied weights; return whether an output matrix, if any, equals the word embeddings.

    A weight that has only its second name is renamed. As in transformers, of two different biases the second counts.
    """
    is_tied = True
    for second, first in family.tied:
        if second not in tensors:
            continue
        first = prefix + first.removeprefix(family.prefix) if first.startswith(family.prefix) else first
        tensor = tensors.pop(second)
        if tensor.dim() == 2 and first in tensors and not torch.equal(tensors[first], tensor):
            is_tied = False
        else:
            tensors[first] = tensor
    return is_tied


def _without_identity(tensors: dict[str, Tensor], family: Family, config: EncoderConfig, prefix: str) -> EncoderConfig:
    """Remove an identity projection; if it is not an identity, keep it and set `embedding_projection`.

    ALBERT's classes always have a dense layer after the embeddings; the original (modeling.py:1081-1088) and our
    encoder have it only if E differs from H. If they are equal, `save_model` writes an identity.
    """
    names = [prefix + saved for _, saved in family.projection]
    if not family.always_projects or config.projects_embeddings or not tensors.keys() >= set(names):
        return config
    weight, bias = (tensors[name] for name in names)
    if weight.dim() != 2 or not torch.equal(weight, torch.eye(*weight.shape)) or bias.any():
        return config.replace(embedding_projection="always")
    for name in names:
        del tensors[name]
    return config


def _check_shapes(loaded: Checkpoint, family: Family, saved_names: Mapping[str, str]) -> None:
    """Compare the shapes of weights with those that config.json implies, without allocating memory."""
    config, state = loaded.config, loaded.state
    shape = config.head_shape(loaded.vocab_size)
    with torch.device("meta"):
        modules = nn.ModuleDict({"encoder": Encoder(config, loaded.vocab_size)})
        modules["heads"] = nn.ModuleDict({objective.kind: objective.head(shape) for objective in _OBJECTIVES})
    expected: dict[str, tuple[int, ...]] = {name: tensor.shape for name, tensor in modules.state_dict().items()}
    if (task := loaded.task) is not None:
        shapes = family.tasks[task.head].shapes(config.hidden_size, task.num_outputs)
        expected |= {f"heads.{task.head}.{name}": shape for name, shape in shapes.items()}
    wrong = [
        f"{saved_names[name]} is {list(tensor.shape)}, expected {list(expected[name])}"
        for name, tensor in state.items()
        if tensor.shape != expected.get(name, tensor.shape)
    ]
    if wrong:
        raise ConversionError(
            f"{len(wrong)} weights in {loaded.folder} do not have the shape that config.json states: "
            f"{'; '.join(wrong[:_NAMES_SHOWN])}",
            hint="Correct config.json (sizes of vocabulary, hidden states, embeddings, feed-forward layers, positions, "
            "segments and labels) or download both files again",
        )
