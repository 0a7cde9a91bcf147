"""The run directory: everything needed to read, resume, repeat or ship a run.

run.json          the request (recipe, corpus, budget, seed), fitted fields, environment, result
recipe.json       the full recipe that is trained
data_card.*       the corpus: sources, what was dropped and why
metrics.jsonl     losses, accuracies (a function of the seed)        timing.jsonl   speeds
tensorboard/      both for TensorBoard
report.html       curves, fills, fitted fields, cost, data (with the extra `report`)
checkpoints/      the newest two, to resume from
kept/             with `--keep`: the model at equal shares of the budget, each a model directory
config.json, model.safetensors, tokenizer*       the model itself, in Hugging Face form
generator/        if the recipe has one: the generator, a model directory of its own
"""

import contextlib
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from maskwright.core.checksums import compare_files, read_record, write_record
from maskwright.core.errors import CheckpointError, MaskwrightError
from maskwright.core.files import disk_problem, disk_problems, is_temporary, lock
from maskwright.huggingface.weight_files import WEIGHTS

FORMAT = 1
Work = Literal["pretraining", "fine-tuning"]
ONE_SEED = "fine-tuning of one seed"
"""The work of a record that names none: `SeedResult.write`."""
GENERATOR = "generator"
"""Sub-directory of a run's directory that holds its generator."""
LOCK = ".lock"


class RunDirectory:
    """A run directory, locked by one process at a time; one of the other kind of work is refused.

    Files that match the glob `kept` must not be overwritten by another run, nor must a model.
    """

    def __init__(self, path: Path, work: Work = "pretraining", kept: str = "checkpoints/step-*") -> None:
        self.path = path
        self._work = work
        self._kept = kept
        self.checkpoints = path / "checkpoints"
        self.kept = path / "kept"
        self.generator = path / GENERATOR
        self._lock = -1
        self._made = False

    def open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Lock the directory; return `run.json` if this run was begun before, {"request": ...} in a new directory.

        Raises CheckpointError if the directory holds another run, another kind of work or other files, or another
        process uses it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file, not a folder", todo="Choose another --out.")
        self._made = not self.path.exists()
        with disk_problems(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        had_lock = (self.path / LOCK).exists()
        self._take_lock()
        record = self.path / "run.json"
        if not record.exists():
            # Dot files are a lock, remains of a kill, or the system's.
            unknown_files = sorted(item.name for item in self.path.iterdir() if not item.name.startswith("."))
            if unknown_files:
                if not had_lock:
                    (self.path / LOCK).unlink(missing_ok=True)
                raise CheckpointError(
                    f"{self.path} is not empty and holds no run (found {', '.join(unknown_files[:3])})",
                    todo="Choose an empty or new folder as --out.",
                )
            self._sweep()
            return {"request": dict(request)}
        try:
            held = read_record(record)
            if (work := held.get("work", ONE_SEED)) != self._work:
                raise CheckpointError(
                    f"{self.path} holds a {work}, and a {self._work} would write its own model over that one",
                    todo="Choose another --out.",
                )
            before: dict[str, Any] = held["request"]
            compare_files(self.path, held.get("files", {}))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is damaged: {error}", todo="Restore that file from a copy, or choose another --out."
            ) from error
        self._sweep()
        if not any(self.path.glob(self._kept)) and not (self.path / WEIGHTS).exists():
            return {"request": dict(request)}  # It ended before anything was saved.
        differing = _differences(before, dict(request)) if held.get("result", {}).get("finished") else []
        if differing and all(line.startswith("budget.") for line in differing):
            raise CheckpointError(
                f"the run in {self.path} is finished; its learning rate has decayed to zero within its budget, "
                "which cannot be changed afterwards",
                todo=f"To train on, start a new run from its weights: `--init {self.path}` with another --out.",
            )
        refuse_other_run(before, request, str(self.path), "--out")
        return held

    def _sweep(self) -> None:
        """Remove what a kill during writing left; the directory is locked."""
        places = (self.path, self.checkpoints, self.generator)
        for leftover in [leftover for place in places for leftover in place.glob(".*.tmp")]:
            if not is_temporary(leftover):
                continue
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def _take_lock(self) -> None:
        # Without locks (Windows, some file systems), users must avoid two runs in one directory.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            self._lock = lock(self.path / LOCK, wait=False, flags=flags)
        except BlockingIOError:
            raise CheckpointError(
                f"another process is training in {self.path}", todo="Wait for it, stop it, or choose another --out."
            ) from None
        except OSError as error:
            raise disk_problem(error, self.path / LOCK) from error

    def close(self) -> None:
        """Unlock the directory; if it was created by this object and is still empty, remove it."""
        if self._made and {item.name for item in self.path.glob("*")} <= {LOCK}:
            with contextlib.suppress(OSError):
                (self.path / LOCK).unlink(missing_ok=True)
                self.path.rmdir()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        write_record(self.path / "run.json", {"format": FORMAT, "work": self._work, **record})

    def update_record(self, **fields: Any) -> None:
        """Set fields of `run.json`."""
        self.write_record({**read_record(self.path / "run.json"), **fields})

    def record_problem(self, error: MaskwrightError) -> None:
        """Set "problem" in `run.json`, if it has been written and can be changed."""
        with contextlib.suppress(MaskwrightError, ValueError):
            self.update_record(problem=str(error))


def refuse_other_run(before: dict[str, Any], now: Mapping[str, Any], place: str, option: str) -> None:
    """Raise CheckpointError if the run at the place that an option names has another request than this one."""
    if differing := _differences(before, dict(now)):
        shown = "; ".join(differing[:5]) + (f"; and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise CheckpointError(
            f"{place} holds another run: {shown}",
            todo=f"Repeat the old command to resume it, or choose another {option}.",
        )


def _differences(before: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        return [line for key in keys for line in _differences(before.get(key), now.get(key), f"{path}.{key}")]
    return [] if before == now else [f"{path.lstrip('.')} was {before!r}, now {now!r}"]


def command_line() -> str:
    """Return the command of this process."""
    return shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "maskwright"), *sys.argv[1:]])


def environment() -> dict[str, Any]:
    """Return versions, platform, threads and the command."""
    from importlib.metadata import version

    return {
        "maskwright": version("maskwright"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "command": command_line(),
    }
