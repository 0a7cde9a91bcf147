"""A copy of a run directory at a URL, from which another machine resumes the run.

Files are uploaded in the order in which they are written here: metrics and model, then a checkpoint with its checksums
last, then `run.json`; dropped checkpoints are deleted at the end. After a kill at any moment the copy is therefore what
the directory itself might be after a kill, and a checkpoint that was not uploaded whole is passed over.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from maskwright.core.checksums import read_record
from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.files import atomic_folder
from maskwright.core.object_stores import download, open_store, store_problems
from maskwright.huggingface.weight_files import WEIGHTS
from maskwright.training.reporting import Reporter
from maskwright.training.run_directory import LOCK, refuse_other_run

_RECORD = "run.json"
_STEPS = ("checkpoints", "kept")
"""Folders of a folder per step; those that are gone here are deleted there."""


class Mirror:
    """The copy of the run directory `folder` at a URL; of rank 0 alone.

    Raises:
        DeviceError: From every method, if the store cannot be used.
    """

    def __init__(self, url: str, folder: Path, reporter: Reporter) -> None:
        self.url, self._folder, self._reporter = url, folder, reporter
        self._system, self._path = open_store(url)
        # Size and time of each file when it was uploaded; None for what was there before.
        self._stored: dict[str, tuple[int, int] | None] = {}

    def restore(self, request: Mapping[str, Any]) -> None:
        """Download the run, if the URL has it and the folder has none.

        Raises CheckpointError if there is another run or something else at the URL, or a later checkpoint of this run.
        """
        with store_problems(self.url):
            found = self._system.find(self._path, detail=True)
        names = {path.removeprefix(self._path).lstrip("/"): info["size"] for path, info in found.items()}
        names = {name: size for name, size in names.items() if not _is_hidden(PurePosixPath(name))}
        self._stored = dict.fromkeys(names)
        if _RECORD not in names:
            if names:
                raise CheckpointError(
                    f"{self.url} is not empty and holds no run (found {', '.join(sorted(names)[:3])})",
                    todo="Choose an empty or new place as --mirror.",
                )
            return
        newest = _newest(names)
        if not newest and WEIGHTS not in names:
            return  # It ended before anything was saved.
        self._refuse_other_run(request)
        if not (self._folder / _RECORD).exists():
            self._download(names)
        elif newest > (here := _newest(self._local())):
            raise CheckpointError(
                f"{self.url} is ahead of {self._folder} ({newest}, here {here or 'no checkpoint'})",
                todo=f"Remove {self._folder} to resume from there, or choose another --mirror.",
            )

    def _refuse_other_run(self, request: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary, _RECORD)
            with store_problems(self.url):
                self._get(_RECORD, file)
            try:
                before = read_record(file)["request"]
            except (ValueError, KeyError, TypeError) as error:
                todo = "Restore that file from a copy, or choose another --mirror."
                raise CheckpointError(f"{self.url} is damaged: {error}", todo=todo) from error
        refuse_other_run(before, request, self.url, "--mirror")

    def _download(self, names: Mapping[str, int]) -> None:
        with contextlib.suppress(OSError):
            (self._folder / LOCK).unlink(missing_ok=True)
            self._folder.rmdir()
        if self._folder.exists():
            raise CheckpointError(
                f"{self._folder} exists and holds no run; that of {self.url} is downloaded to a new folder only",
                todo="Choose another --out, or remove that folder.",
            )
        done, total = 0, sum(names.values())
        with atomic_folder(self._folder) as temporary:
            for name, size in names.items():
                with store_problems(self.url):
                    self._get(name, temporary / name, done, total)
                done += size
        self._stored = dict(self._local())
        self._reporter.message("mirror", f"downloaded {self._folder} from {self.url}")

    def _get(self, name: str, file: Path, before: int = 0, total: int = 0) -> None:
        def arrived(_: int | None, count: int) -> None:
            if total:
                self._reporter.stage("downloading (bytes)", before + count, total)

        download(self._system, f"{self._path}/{name}", file, arrived)

    def _local(self) -> dict[str, tuple[int, int]]:
        files = {file.relative_to(self._folder): file for file in self._folder.rglob("*") if file.is_file()}
        states = {name.as_posix(): file.stat() for name, file in files.items() if not _is_hidden(name)}
        return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}

    def upload(self) -> None:
        """Copy the changed files to the URL."""
        local = self._local()
        # The first time it comes first, so that an upload that is cut short is recognized as this run's.
        is_first = _RECORD not in self._stored
        steps, newest = _steps(local), _newest(local)
        dropped = _steps(self._stored) - steps
        later = {step for step in dropped if step > newest}
        with store_problems(self.url):
            self._delete(later)  # They would be resumed, without their metrics.
            for name in sorted(local, key=lambda name: ((name == _RECORD) != is_first, *_order(name))):
                if self._stored.get(name) != local[name]:
                    self._put(name)
                    self._stored[name] = local[name]
            self._delete(dropped - later)

    def try_upload(self) -> None:
        """Copy the changed files; a failure is a warning, and the next call is another attempt."""
        try:
            self.upload()
        except DeviceError as error:
            self._reporter.message("warning", f"the mirror is behind: {error.problem}; the next checkpoint tries again")

    def finish(self) -> None:
        """Copy the changed files at the end; the error of a failure says how to repeat it."""
        try:
            self.upload()
        except DeviceError as error:
            raise DeviceError(
                f"the run is saved in {self._folder}, but its copy is behind: {error.problem}",
                todo="The same command copies the rest." + (f" {error.todo}" if error.todo else ""),
            ) from error

    def _put(self, name: str) -> None:
        file, target = str(self._folder / name), f"{self._path}/{name}"
        if "file" not in self._system.protocol:
            self._system.put_file(file, target)
            return
        # A store replaces an object at once, a disk only by renaming.
        folder, _, last = target.rpartition("/")
        self._system.makedirs(folder, exist_ok=True)
        self._system.put_file(file, f"{folder}/.{last}.part")
        self._system.mv(f"{folder}/.{last}.part", target)

    def _delete(self, steps: Iterable[str]) -> None:
        for step in sorted(steps):
            self._system.rm(f"{self._path}/{step}", recursive=True)
            self._stored = {name: state for name, state in self._stored.items() if not name.startswith(f"{step}/")}


def _is_hidden(name: PurePath) -> bool:
    return any(part.startswith(".") for part in name.parts)


def _order(name: str) -> tuple[bool, bool, str]:
    return name.startswith("checkpoints/"), name.endswith("/state.json"), name


def _steps(names: Iterable[str]) -> set[str]:
    """Return the folders of steps, "checkpoints/step-000000007"."""
    parts = [name.split("/") for name in names]
    return {"/".join(each[:2]) for each in parts if each[0] in _STEPS and len(each) > 2}


def _newest(names: Iterable[str]) -> str:
    """Return the folder of the newest checkpoint with a record; "" if there is none."""
    states = [name for name in names if name.startswith("checkpoints/") and name.endswith("/state.json")]
    return max(states, default="").removesuffix("/state.json")
