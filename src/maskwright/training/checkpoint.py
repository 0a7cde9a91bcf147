"""Checkpoints that are whole or absent: a folder a step, checked by checksum, written beside and renamed.

A checkpoint holds the weights and the optimizer's moments (safetensors) and the run's state (JSON). There is no random
state to keep: every draw is keyed.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from maskwright.core.errors import CheckpointError
from maskwright.core.files import atomic_folder, checksum, read_json
from maskwright.core.tensor_files import write_tensors

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
