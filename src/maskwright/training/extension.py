"""Extension of a run to a larger budget, from the stable part of its learning rate schedule."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import write_record
from maskwright.core.storage.files import atomic_folder, checksum, write_json
from maskwright.fitting.budget import Budget, Spent
from maskwright.recipes.optimization import Training
from maskwright.recipes.saved import read_recipe
from maskwright.training.runs import checkpoint
from maskwright.training.runs.run_directory import RECORD, STABLE
from maskwright.training.start.continuation import split_budget

_WAY = "`--set training.schedule=warmup_stable_decay` makes runs whose budget can be enlarged"


def stable_until(training: Training) -> float:
    """Return the progress at which the learning rate begins to decay after its constant part; 2 without such a part."""
    return 1 - training.decay_share if training.schedule == "warmup_stable_decay" else 2.0


def extend(folder: Path, record: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Give a begun run the larger budget of a request that differs in nothing else; return the new `run.json`.

    The run resumes from its newest checkpoint or, if that is of the decaying part, from the one that was kept when the
    decay began. Its recipe stays as fitted, except that `training.steps` grows with the budget, so that warmup and
    constant part are those of the longer schedule. The phases of a longer run end later, but none is repeated. If the
    process is killed, the same call starts again, and the old command still finds its run.

    Raises CheckpointError if the schedule has no constant part, the budget is not larger, or the checkpoint is lost.
    """
    old, new = (Budget(*next(iter(each["budget"].items()))) for each in (record["request"], request))
    recipe_file = folder / "recipe.json"
    recipe = read_recipe(recipe_file)
    training = recipe.training
    _, old_main = split_budget(old, recipe, record)  # Without the training of a new head alone.
    restart = f"To train on, start a new run from its weights: `--init {folder}` with another --out"
    if training.schedule != "warmup_stable_decay":
        finished = bool(record.get("result", {}).get("finished"))
        raise CheckpointError(
            f"the run in {folder} {'is finished' if finished else 'has begun'}; its learning rate decays to zero "
            f"within its budget ({old}, now {new}), which cannot be changed afterwards",
            hint=f"{restart}; {_WAY}." if finished else f"Repeat the old command to resume it. {_WAY}.",
        )
    if old.unit != new.unit or new.amount < old.amount:
        raise CheckpointError(
            f"the run in {folder} has a budget of {old}, now {new}",
            allowed=f"the same, or more {old.unit}",
            hint="Repeat the old command, enlarge its budget, or choose another --out.",
        )
    checkpoints, stable = folder / "checkpoints", folder / STABLE
    newest, _ = checkpoint.latest(checkpoints)
    if newest is None or old_main.progress(Spent(**newest.state["spent"])) > stable_until(training):
        kept = max(stable.glob("step-*"), default=None)
        if kept is None:
            problem = f"the learning rate of the run in {folder} has begun to decay"
            raise CheckpointError(f"{problem}, and no checkpoint of its constant part was kept", hint=f"{restart}.")
        checkpoint.latest(stable)  # Raises if it is damaged.
        if not (checkpoints / kept.name).exists():
            with atomic_folder(checkpoints / kept.name) as temporary:
                shutil.copytree(kept, temporary, dirs_exist_ok=True)
        for later in checkpoints.glob("step-*"):
            if later.name > kept.name:
                shutil.rmtree(later)
    factor = new.amount / old.amount
    longer = training.replace(steps=round(factor * training.steps))
    write_json(recipe_file, recipe.replace(training=longer).model_dump(mode="json"))
    dropped = ("result", "outputs", "samples", "problem", "replanned_tokens")
    extended = {name: value for name, value in record.items() if name not in dropped} | {
        "request": dict(request),
        "files": {**record["files"], recipe_file.name: checksum(recipe_file)},
        "expected_tokens": factor * record["expected_tokens"],
        # The held-out text stays the same.
        "first_expected_tokens": record.get(
            "first_expected_tokens", old_main.amount / old.amount * record["expected_tokens"]
        ),
        "fitted": [
            {**each, "chosen": longer.steps, "reason": f"extended from {old} to {new}"}
            if each["field"] == "training.steps"
            else each
            for each in record["fitted"]
        ],
        "extended_from": [*record.get("extended_from", []), record["request"]["budget"]],
    }
    write_record(folder / RECORD, extended)
    shutil.rmtree(stable, ignore_errors=True)
    return extended
