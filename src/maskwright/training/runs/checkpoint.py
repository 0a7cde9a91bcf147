"""Checkpoints (to resume) and saved models (to use).

A checkpoint is a directory per step: weights and optimizer moments (safetensors), the run's position in its budget and
data (JSON), copies of small files of the run, and checksums. It is written to a temporary directory and renamed. It
holds no random state: all random numbers are keyed.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import save_model
from maskwright.checkpoints.families import family_named
from maskwright.checkpoints.location import GENERATOR
from maskwright.checkpoints.refusals import refuse_inexpressible
from maskwright.checkpoints.sentence_folder import SentenceModules, write_sentence_modules
from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import (
    compare_files,
    damaged_files,
    file_checksums,
    read_record,
    refuse_unreadable,
    write_record,
)
from maskwright.core.storage.files import atomic_folder, atomic_path
from maskwright.core.storage.tensor_files import write_tensors
from maskwright.core.types import SpecialTokens
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.fitting.budget import Spent
from maskwright.pretext.objectives import SentenceVectors
from maskwright.recipes.recipe import Recipe
from maskwright.training.ranks.distributed import broadcast, on_rank_zero, rank
from maskwright.training.runs.run_directory import COPIES
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.optimizer import Optimizer
from maskwright.training.steps.weights import encoder_weights, generator_weights

_KEPT = 2
_TENSORS = ("weights.safetensors", "optimizer.safetensors")


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A checkpoint that was read; see `save`."""

    step: int
    state: dict[str, Any]
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    folder: Path
    checksums: dict[str, str]

    def restore(self, file: Path) -> None:
        """Replace a file by its copy, if there is one that is intact."""
        name = f"{COPIES}/{file.name}"
        if name in self.checksums and not damaged_files(self.folder, {name: self.checksums[name]}):
            with atomic_path(file) as temporary:
                shutil.copyfile(self.folder / name, temporary)


def step_name(step: int) -> str:
    """Return the name of a step's folder; names sort as steps do."""
    return f"step-{step:09d}"


def save(
    checkpoints: Path,
    step: int,
    state: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    copies: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Write the checkpoint of a step, then drop all but the newest two.

    `copies` is the content of files of the run, by path in its directory.

    Raises DeviceError if the disk is full; earlier checkpoints are untouched.
    """
    folder = checkpoints / step_name(step)
    for damaged in [each for each in checkpoints.glob("step-*") if each.name >= folder.name]:
        shutil.rmtree(damaged)  # It was skipped when resuming, and would take the place of an intact one.
    with atomic_folder(folder) as temporary:
        for name, tensors in zip(_TENSORS, (weights, moments), strict=True):
            write_tensors(temporary / name, tensors, shown=folder / name)
        for name, content in copies.items():
            path = temporary / COPIES / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        record = {"step": step, "state": dict(state), "checksums": file_checksums(temporary)}
        write_record(temporary / "state.json", record)
    for old in sorted(checkpoints.glob("step-*"))[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def latest(checkpoints: Path) -> tuple[TrainingState | None, list[str]]:
    """Return the newest intact checkpoint (None if there is none at all) and a line for each newer, damaged one.

    Raises CheckpointError if there are checkpoints but none is intact; DeviceError if a file of one exists but cannot
    be read, so that an intact one is never passed over and deleted.
    """
    folders = sorted(checkpoints.glob("step-*"), reverse=True)
    damaged: list[str] = []
    for folder in folders:
        try:
            return _read(folder), damaged
        except CheckpointError as error:
            damaged.append(error.problem)
    if damaged:
        raise CheckpointError(
            "no checkpoint is intact: " + "; ".join(damaged),
            hint=f"Remove {checkpoints.parent} to train from the start, or restore it from a copy.",
        )
    return None, []


def broadcast_loaded(step: int, weights: Mapping[str, Tensor], optimizer: Optimizer) -> None:
    """Give every rank the weights and moments that rank 0 has at a step."""
    broadcast(weights.values())
    if step:
        moments = optimizer.state()
        broadcast(moments.values())
        if rank():
            optimizer.load_state(moments, step)


def _read(folder: Path) -> TrainingState:
    try:
        record = read_record(folder / "state.json")
        checksums = record["checksums"]
        # A damaged copy is no reason to lose the steps since the checkpoint before.
        compare_files(folder, {name: checksums[name] for name in _TENSORS})
        return TrainingState(
            step=record["step"],
            state=record["state"],
            weights=load_file(folder / _TENSORS[0]),
            moments=load_file(folder / _TENSORS[1]),
            folder=folder,
            checksums=checksums,
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        refuse_unreadable(folder, error)
        raise CheckpointError(f"{folder} is damaged: {error}") from error


class CheckpointTimer:
    """Saves every `seconds` (0: after every step), or less often if saving takes more than `share` of the time.

    All ranks save after the same step, because `Spent.seconds` is equal on all. All wait for rank 0, without a limit.

    Args:
        save: Called on rank 0.
        last_step: The step of the newest checkpoint, -1 for none.
        now: Seconds spent so far.
    """

    def __init__(
        self, save: Callable[[], None], last_step: int, now: float, seconds: float = 60.0, share: float = 0.03
    ) -> None:
        self._save, self._last_step = save, last_step
        self._seconds, self._share = seconds, share
        self._next = now + seconds

    def is_due(self, now: float) -> bool:
        return now >= self._next

    def save_step(self, spent: Spent) -> None:
        """Save this step, unless it is saved already."""
        if spent.steps == self._last_step:
            return

        def seconds_of_saving() -> float:
            begun = time.monotonic()
            self._save()
            return time.monotonic() - begun

        seconds = on_rank_zero(seconds_of_saving)
        self._last_step = spent.steps
        self._next = spent.seconds + (seconds + max(self._seconds, seconds / self._share) if self._seconds else 0.0)


def check_savable(recipe: Recipe, pad: int) -> None:
    """Refuse a recipe that its family's Hugging Face classes cannot represent.

    Raises:
        ConversionError: Names the field, allowed values, and the families that can represent it.
    """
    for encoder, objectives in recipe.encoders.values():
        heads = frozenset[str](objective.kind for objective in objectives)
        refuse_inexpressible(family_named(recipe.family), encoder, pad, heads)


def save_tokenizer(folder: Path, recipe: Recipe, tokenizer: Tokenizer) -> list[Path]:
    """Save the tokenizer beside the encoder and beside a generator; return both folders."""
    folders = [folder, folder / GENERATOR] if recipe.generator else [folder]
    for each in folders:
        # Transformers' general class passes no segment ids unless it is told to.
        has_segments = recipe.encoder.type_vocab_size > 1
        tokenizer.save(each, max_length=recipe.training.max_length, segments=has_segments or None)
    return folders


def save_models(folder: Path, recipe: Recipe, model: PretrainingModel, special_tokens: SpecialTokens) -> None:
    """Save the encoder in Hugging Face format, and a generator in the sub-directory `GENERATOR`.

    A student of sentence vectors becomes a folder of sentence-transformers.

    Raises DeviceError if the directory cannot be written.
    """
    models = [(folder, recipe.encoder, encoder_weights(model))]
    if model.generator is not None:
        models.append((folder / GENERATOR, model.generator.config, generator_weights(model)))
    for path, config, state in models:
        save_model(
            path,
            family=recipe.family,
            config=config,
            special_tokens=special_tokens,
            # Not the linear layer of sentence vectors, which is written below.
            state={name: each for name, each in state.items() if not name.startswith("heads.sentence_vectors.")},
            max_length=recipe.training.max_length,
        )
    for objective in recipe.objectives:
        if isinstance(objective, SentenceVectors):
            layer = model.heads[objective.kind]
            dense = layer if isinstance(layer, nn.Linear) else None
            modules = SentenceModules(pooling=objective.pooling or "mean", normalize=True, dense=dense)
            longest = recipe.training.max_length
            write_sentence_modules(folder, modules, hidden_size=recipe.encoder.hidden_size, max_length=longest)
