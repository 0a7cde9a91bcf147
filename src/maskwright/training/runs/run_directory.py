"""The run directory: everything needed to read, resume, repeat or ship a run.

run.json          the request (recipe, corpus, budget, seed), fitted fields, environment, result
recipe.json       the full recipe that is trained
data_card.*       the corpus: sources, what was dropped and why
metrics.jsonl     losses, accuracies (a function of the seed)        timing.jsonl   speeds
tensorboard/      both for TensorBoard (with the extra `tensorboard`)
tracking.json     with `--report-to`: the ids of the tracked run
report.html       curves, fills, fitted fields, cost, data
checkpoints/      the newest two, to resume from; each has copies of the files that resuming needs
stable/           the checkpoint at the end of a constant learning rate, from which the run can be extended
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
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch

from maskwright.checkpoints.location import GENERATOR
from maskwright.checkpoints.weight_files import WEIGHTS
from maskwright.core.errors import CheckpointError, MaskwrightError
from maskwright.core.storage.checksums import damaged_files, read_record, record_text, write_record
from maskwright.core.storage.files import (
    atomic_path,
    checksum,
    disk_problem,
    disk_problems,
    lock,
    mark_in_use,
    remove_temporary,
    unmark_in_use,
)
from maskwright.recipes.saved import updated_request

FORMAT = 1
Work = Literal["pretraining", "fine-tuning"]
Extend = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
"""Extends the run in a folder to a request's budget: (folder, `run.json`, request) -> new `run.json`."""
ONE_SEED = "fine-tuning of one seed"
"""The work of a record that names none: `SeedResult.write`."""
LOCK = ".lock"
RECORD, METRICS, TIMING = "run.json", "metrics.jsonl", "timing.jsonl"
STABLE = "stable"
"""Sub-directory of a run's directory with the checkpoint of the step at which its learning rate began to decay."""
COPIES = "copies"
"""Sub-directory of a checkpoint, or of a seed's directory, with copies of files of the run directory."""


class RunDirectory:
    """A run directory, locked by one process at a time; one of the other kind of work is refused.

    Files that match the glob `resumable` must not be overwritten by another run, nor must a model. Their folders
    `COPIES` hold copies of other files of the run directory. `defaults` are the values of those "settings" of a request
    that the record of an earlier version lacks.

    Two fields of `run.json` are checksums by name: "files", without which the run cannot be resumed, and "outputs", all
    that a finished run has made.
    """

    def __init__(
        self,
        path: Path,
        work: Work = "pretraining",
        resumable: str = "checkpoints/step-*",
        defaults: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.notes: list[str] = []
        """Messages about the files that `open` has restored."""
        self._work = work
        self._resumable = resumable
        self._defaults = defaults
        self.checkpoints = path / "checkpoints"
        self.kept = path / "kept"
        self.generator = path / GENERATOR
        self._lock = -1
        self._made = False
        self._record: dict[str, Any] = {}

    def open(self, request: Mapping[str, Any], extend: Extend | None = None) -> dict[str, Any]:
        """Lock the directory; return `run.json` if this run was begun before, {"request": ...} in a new directory.

        Missing and damaged files are restored from copies. Without a copy of one of the "outputs", the run counts as
        not finished. `extend` makes the run of an equal request with another budget the requested one, or raises.

        Raises CheckpointError if the directory holds another run, another kind of work or other files, another process
        uses it, or a damaged file cannot be restored.
        """
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file, not a folder", hint="Choose another --out.")
        self._made = not self.path.exists()
        with disk_problems(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        had_lock = (self.path / LOCK).exists()
        self._lock = lock_directory(self.path)
        held = self._restored_record()
        if held is None:
            # Dot files are a lock, remains of a kill, or the system's.
            unknown_files = sorted(item.name for item in self.path.iterdir() if not item.name.startswith("."))
            if unknown_files:
                if not had_lock:
                    (self.path / LOCK).unlink(missing_ok=True)
                raise CheckpointError(
                    f"{self.path} is not empty and holds no run (found {', '.join(unknown_files[:3])})",
                    hint="Choose an empty or new folder as --out.",
                )
            remove_temporary(self.path)
            return {"request": dict(request)}
        if (work := held.get("work", ONE_SEED)) != self._work:
            raise CheckpointError(
                f"{self.path} holds a {work}, and a {self._work} would write its own model over that one",
                hint="Choose another --out.",
            )
        remove_temporary(self.path)
        saved = self.has_checkpoint()
        is_finished = bool(held.get("finished") or held.get("result", {}).get("finished"))
        if not saved and not (self.path / WEIGHTS).exists() and not is_finished:
            return {"request": dict(request)}  # It ended before anything was saved.
        if lost := self._restore_files(held.get("files", {})):
            raise self._damaged(lost)
        if not isinstance(before := held.get("request"), dict):
            raise self._damaged({RECORD: f"{RECORD} has no request"})
        if self._defaults:
            before = {**before, "settings": {**self._defaults, **before.get("settings", {})}}
        if extend is not None and before != dict(request) and has_other_budget(before, request):
            held = extend(self.path, held, request)
            before = held["request"]
        refuse_other_run(before, request, str(self.path), "--out")
        if lost := self._restore_files(held.get("outputs", {})):
            if self._work == "pretraining" and not saved:
                raise self._damaged(lost)
            self.notes.append(f"{'; '.join(lost.values())}: made again")
            # Written, since other processes read it.
            held = {name: value for name, value in held.items() if name not in ("result", "outputs", "finished")}
            self.write_record(held)
        self._record = dict(held)
        return held

    def refuse_model(self, folder: Path) -> None:
        """Raise CheckpointError if the folder of a model to train from is this directory."""
        if self.path.resolve() == folder.resolve():
            raise CheckpointError(
                f"{self.path} is the model to fine-tune; it would be overwritten", hint="Choose another --out."
            )

    def has_checkpoint(self) -> bool:
        """Return whether there is something to resume from."""
        return any(self.path.glob(self._resumable))

    def _copies(self, name: str) -> list[Path]:
        """Return the copies of a file, those of the newest checkpoint first."""
        return sorted(self.path.glob(f"{self._resumable}/{COPIES}/{name}"), reverse=True)

    def _restored_record(self) -> dict[str, Any] | None:
        """Return `run.json`, from a copy if it is missing or damaged; None if it is missing and there is no copy."""
        path = self.path / RECORD
        try:
            return read_record(path)
        except ValueError as error:
            problem = str(error)
        for copy in self._copies(RECORD):
            with contextlib.suppress(ValueError):
                record = read_record(copy)
                write_record(path, record)
                self.notes.append(f"{problem}: restored from {copy.parent.parent.name}")
                return record
        if path.exists():
            raise self._damaged({RECORD: problem})
        return None

    def _restore_files(self, checksums: Mapping[str, str]) -> dict[str, str]:
        """Restore files from intact copies; return what is wrong with those that have none."""
        lost = {}
        for name, problem in damaged_files(self.path, checksums).items():
            for copy in self._copies(name):
                if not damaged_files(copy.parents[name.count("/")], {name: checksums[name]}):
                    with atomic_path(self.path / name) as temporary:
                        shutil.copyfile(copy, temporary)
                    self.notes.append(f"{problem}: restored from {copy.parents[name.count('/') + 1].name}")
                    break
            else:
                lost[name] = problem
        return lost

    def _damaged(self, problems: Mapping[str, str]) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is damaged: {'; '.join(problems.values())}, and no checkpoint there has a copy",
            hint=f"Restore that file from a backup, or remove {self.path} to start again.",
        )

    def files(self) -> dict[str, bytes]:
        """Return the content of the "files", by name; raises CheckpointError if one is damaged."""
        if lost := damaged_files(self.path, checksums := self._record.get("files", {})):
            raise self._damaged(lost)
        return {name: (self.path / name).read_bytes() for name in checksums}

    def copied_record(self) -> bytes:
        """Return the content of `run.json`."""
        return record_text(self._record).encode()

    def write_copy(self, folder: Path) -> None:
        """Write a copy of `run.json` for `open` into a folder that the glob `resumable` matches."""
        write_record(folder / COPIES / RECORD, self._record)

    def close(self) -> None:
        """Unlock the directory; if it was created by this object and is still empty, remove it."""
        unlock_directory(self.path, self._lock, and_remove=self._made)
        self._lock = -1

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Write `run.json`."""
        self._record = {"format": FORMAT, "work": self._work, **record}
        write_record(self.path / RECORD, self._record)

    def update_record(self, **fields: Any) -> None:
        self.write_record({**self._record, **fields})

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result of a session into `run.json`; once the run is finished, with checksums of its outputs."""
        fields = {}
        if result["finished"]:
            models = [folder for folder in (self.path, self.generator) if folder.is_dir()]
            outputs = [self.path / name for name in (METRICS, TIMING)]
            outputs += [folder / name for folder in models for name in ("config.json", WEIGHTS)]
            fields["outputs"] = {path.relative_to(self.path).as_posix(): checksum(path) for path in outputs}
        self.update_record(result=result, **fields)

    def record_problem(self, error: MaskwrightError) -> None:
        """Set "problem" in `run.json`, if it has been written and can be changed."""
        if self._record:
            with contextlib.suppress(MaskwrightError):
                self.update_record(problem=str(error))


def lock_directory(path: Path) -> int:
    """Lock a directory for this process and mark it as in use; return the lock's descriptor, -1 for none.

    Raises CheckpointError if another process has locked it. Without locks (Windows, some file systems), users must
    avoid two runs in one directory.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = lock(path / LOCK, wait=False, flags=flags)
    except BlockingIOError:
        raise CheckpointError(
            f"another process is training in {path}", hint="Wait for it, stop it, or choose another --out."
        ) from None
    except OSError as error:
        raise disk_problem(error, path / LOCK) from error
    mark_in_use(path, descriptor)
    return descriptor


def unlock_directory(path: Path, descriptor: int, *, and_remove: bool) -> None:
    """Undo `lock_directory`; if wanted, remove the directory if it holds nothing else."""
    unmark_in_use(path)
    if and_remove and {item.name for item in path.glob("*")} <= {LOCK}:
        with contextlib.suppress(OSError):
            (path / LOCK).unlink(missing_ok=True)
            path.rmdir()
    if descriptor >= 0:
        os.close(descriptor)


def refuse_other_run(before: dict[str, Any], now: Mapping[str, Any], location: str, option: str) -> None:
    """Raise CheckpointError if the run at the location that an option names has another request than this one."""
    if differing := _changes(before, now):
        shown = "; ".join(differing[:5]) + (f"; and {len(differing) - 5} more" if len(differing) > 5 else "")
        raise CheckpointError(
            f"{location} holds another run: {shown}",
            hint=f"Repeat the old command to resume it, or choose another {option}.",
        )


def has_other_budget(before: dict[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two requests differ in nothing but their budgets."""
    differing = _changes(before, now)
    return bool(differing) and all(line.startswith("budget.") for line in differing)


def is_same_run(record: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Return whether the record in `run.json` is of a run of this request."""
    return not _changes(record.get("request"), request)


def _changes(before: Any, now: Mapping[str, Any]) -> list[str]:
    """Describe the differences between a recorded request, perhaps of an earlier version, and this one."""
    return _differences(updated_request(before, RECORD) if isinstance(before, dict) else before, dict(now))


def _differences(before: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        return [line for key in keys for line in _differences(before.get(key), now.get(key), f"{path}.{key}")]
    return [] if before == now else [f"{path.lstrip('.')} was {_shown(before)}, now {_shown(now)}"]


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)


def command_line() -> str:
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
