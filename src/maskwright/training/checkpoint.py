"""Checkpoints that are whole or absent: a folder a step, checked by checksum, written beside and renamed.

A checkpoint holds the weights and the optimizer's moments (safetensors) and the run's state (JSON). There is no random
state to keep: every draw is keyed.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from maskwright.core.errors import CheckpointError
from maskwright.core.files import atomic_folder, checksum, read_json
from maskwright.core.tensor_files import write_tensors
from maskwright.core.types import SpecialTokens
from maskwright.huggingface.families import family_named
from maskwright.huggingface.huggingface import save_model
from maskwright.huggingface.refusals import refuse_inexpressible
from maskwright.model.config import EncoderConfig
from maskwright.recipes.recipe import Recipe
from maskwright.training.model import PretrainingModel
from maskwright.training.run_directory import GENERATOR

_KEPT = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was read back.

    Attributes:
        step: Optimizer steps done.
        state: The run's state, as it was given to `save`.
        weights: Parameters by name.
        moments: Optimizer state by name.
        folder: Where it lies.
    """

    step: int
    state: dict[str, Any]
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    folder: Path


def save(
    checkpoints: Path,
    step: int,
    state: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
) -> Path:
    """Write the checkpoint of a step, then drop all but the newest two.

    Raises:
        DeviceError: If the disk is full; earlier checkpoints are untouched.
    """
    folder = checkpoints / f"step-{step:09d}"
    if folder.exists():  # A damaged one of the same step was passed over when the run resumed.
        shutil.rmtree(folder)
    with atomic_folder(folder) as temporary:
        files = {"weights.safetensors": weights, "optimizer.safetensors": moments}
        for name, tensors in files.items():
            write_tensors(temporary / name, tensors, shown=folder / name)
        manifest = {
            "step": step,
            "state": dict(state),
            "checksums": {name: checksum(temporary / name) for name in files},
        }
        (temporary / "state.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for old in sorted(checkpoints.glob("step-*"))[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def latest(checkpoints: Path) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest checkpoint that is whole.

    Returns:
        The checkpoint (None if there is none at all) and a line for each newer one that was damaged.

    Raises:
        CheckpointError: If there are checkpoints but none is whole.
    """
    folders = sorted(checkpoints.glob("step-*"), reverse=True)
    damaged: list[str] = []
    for folder in folders:
        try:
            return _read(folder), damaged
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError(
            "no checkpoint is whole: " + " ".join(damaged),
            todo=f"Remove {checkpoints.parent} to train from the start, or restore it from a copy.",
        )
    return None, []


def _read(folder: Path) -> Checkpoint:
    try:
        manifest = read_json(folder / "state.json")
        for name, expected in manifest["checksums"].items():
            if checksum(folder / name) != expected:
                raise CheckpointError(f"{folder / name} is damaged (its checksum differs)")
        return Checkpoint(
            step=manifest["step"],
            state=manifest["state"],
            weights=load_file(folder / "weights.safetensors"),
            moments=load_file(folder / "optimizer.safetensors"),
            folder=folder,
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error


class CheckpointTimer:
    """Calls `save` at a cadence.

    Args:
        save: Writes a checkpoint of a step.
        last_step: The step of the newest checkpoint, -1 for none.
        seconds: Time between checkpoints; 0 keeps every step (for checking resumption).
        share: Largest share of the time that writing may take.
    """

    def __init__(self, save: Callable[[], None], last_step: int, seconds: float = 60.0, share: float = 0.03) -> None:
        self._save, self._last_step = save, last_step
        self._seconds, self._share = seconds, share
        self._next = time.monotonic() + seconds

    def is_due(self) -> bool:
        """Whether the time has come."""
        return time.monotonic() >= self._next

    def keep(self, step: int) -> None:
        """Write a checkpoint of this step, unless there is one already."""
        if step == self._last_step:
            return
        begun = time.monotonic()
        self._save()
        ended = time.monotonic()
        self._last_step = step
        self._next = ended + (max(self._seconds, (ended - begun) / self._share) if self._seconds else 0.0)


def check_savable(recipe: Recipe, pad: int) -> None:
    """Refuse a recipe whose models its family's Hugging Face classes cannot hold.

    Args:
        recipe: What is to be trained.
        pad: The padding id.

    Raises:
        ConversionError: With the field, what it could be, and the families that hold it as it is.
    """
    for encoder, heads in _towers(recipe):
        refuse_inexpressible(family_named(recipe.family), encoder, pad, frozenset(heads))


def _towers(recipe: Recipe) -> list[tuple[EncoderConfig, set[str]]]:
    """List the encoders that will be saved, and the kinds of the heads on each."""
    kinds: set[str] = {objective.kind for objective in recipe.objectives}
    if recipe.generator is None:
        return [(recipe.encoder, kinds)]
    on_generator: set[str] = {objective.kind for objective in recipe.objectives if objective.on_generator}
    return [(recipe.encoder, kinds - on_generator), (recipe.generator.config(recipe.encoder), on_generator)]


def save_models(folder: Path, recipe: Recipe, model: PretrainingModel, special_tokens: SpecialTokens) -> None:
    """Write what is trained as transformers reads it, a generator in a folder beside it.

    Args:
        folder: The encoder's; the generator's is its sub-folder `GENERATOR`.
        recipe: What is trained.
        model: Its weights.
        special_tokens: Padding id and vocabulary size.

    Raises:
        DeviceError: If the folder cannot be written.
    """
    models = [(folder, recipe.encoder, model.encoder_weights())]
    if model.generator is not None:
        models.append((folder / GENERATOR, model.generator.config, model.generator_weights()))
    for place, config, state in models:
        save_model(
            place,
            family=recipe.family,
            config=config,
            special_tokens=special_tokens,
            state=state,
            max_length=recipe.training.max_length,
        )
