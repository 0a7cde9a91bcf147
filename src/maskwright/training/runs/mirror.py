"""A copy of a run directory at a URL, from which another machine resumes the run.

URL/latest.json             the run's request, the newest complete copy, and its files
URL/step-NNNNNNNNN/         that copy: the run directory with its newest checkpoint
URL/kept/step-NNNNNNNNN/    kept models
URL/stable/step-NNNNNNNNN/  the checkpoint of the step at which the learning rate began to decay

A copy is uploaded whole before `latest.json` names it, and older ones are deleted afterwards, so a kill at any moment
leaves a complete copy, or none. Between two checkpoints only small files of the current copy are replaced, `run.json`
last.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError, DeviceError
from maskwright.core.storage.object_stores import download_folder, is_hidden, open_store, store_problems
from maskwright.reporting.reporter import Reporter
from maskwright.training.runs.run_directory import LOCK, STABLE, has_other_budget, refuse_other_run

_LATEST, _RECORD, _KEPT = "latest.json", "run.json", ("kept/", f"{STABLE}/")


def recorded_request(url: str) -> dict[str, Any]:
    """Return the request of the run at a URL, {} if there is none that can be read."""
    system, path = open_store(url)
    with store_problems(url), contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        return dict(json.loads(system.cat_file(f"{path}/{_LATEST}"))["request"])
    return {}


class Mirror:
    """The copy of the run directory `folder` at a URL; of rank 0 alone.

    Raises:
        DeviceError: From every method, if the store cannot be used.
    """

    def __init__(self, url: str, folder: Path, reporter: Reporter) -> None:
        self.url, self._folder, self._reporter = url, folder, reporter
        self._system, self._path = open_store(url)
        self._is_on_disk = "file" in self._system.protocol
        self._request: dict[str, Any] = {}
        self._latest = b""  # As this process read or wrote it.
        # Size and time of each file when it was copied, by its path there.
        self._stored: dict[str, tuple[int, int]] = {}

    def restore(self, request: Mapping[str, Any]) -> None:
        """Download the run, if the URL has it and the folder has none.

        Raises CheckpointError if there is another run or something else at the URL, or a later checkpoint of this run.
        """
        local, remote = self._folder.resolve(), Path(self._path)
        if self._is_on_disk and (local.is_relative_to(remote) or remote.is_relative_to(local)):
            raise CheckpointError(f"{self.url} and {self._folder} contain each other", hint="Choose another --mirror.")
        self._request = json.loads(json.dumps(request))
        with store_problems(self.url):
            self._latest = self._read_latest()
            self._write(".writable", b"")  # If it cannot be written, that is known before training.
            self._system.rm(f"{self._path}/.writable")
            stored = [] if self._latest else self._system.find(self._path)
        if not self._latest:
            names = {path.removeprefix(self._path).lstrip("/") for path in stored}
            if others := sorted(name for name in names if not name.startswith(("step-", *_KEPT, "."))):
                raise CheckpointError(
                    f"{self.url} is not empty and holds no run (found {', '.join(others[:3])})",
                    hint="Choose an empty or new URL or folder as --mirror.",
                )
            return
        try:
            latest = json.loads(self._latest)
            before, copy, files = latest["request"], str(latest["copy"]), dict(latest["files"])
        except (ValueError, KeyError, TypeError) as error:
            hint = "Restore that file from a copy, or choose another --mirror."
            raise CheckpointError(f"{self.url}/{_LATEST} is damaged: {error}", hint=hint) from error
        is_other_budget = has_other_budget(before, self._request)
        if not is_other_budget:  # Otherwise the run directory extends the run or refuses.
            refuse_other_run(before, self._request, self.url, "--mirror")
        if not (self._folder / _RECORD).exists():
            self._download(copy, files)
            return
        local_files = self._local()
        # An extension has deleted the checkpoints of the decaying part, which the mirror has until the next upload.
        if copy > (newest := _newest(local_files)) and not is_other_budget:
            raise CheckpointError(
                f"{self.url} is ahead of {self._folder} ({copy}, here {newest or 'no checkpoint'})",
                hint=f"Remove {self._folder} to resume from there, or choose another --mirror.",
            )
        # Those that are complete there are not replaced, in case that they are damaged here.
        complete = [
            name for name, size in files.items() if size is not None and size == local_files.get(name, (-1, 0))[0]
        ]
        self._stored = {self._object_path(copy, name): local_files[name] for name in complete}

    def _download(self, copy: str, files: Mapping[str, int | None]) -> None:
        with contextlib.suppress(OSError):
            (self._folder / LOCK).unlink(missing_ok=True)
            self._folder.rmdir()
        if self._folder.exists():
            raise CheckpointError(
                f"{self._folder} exists and holds no run; that of {self.url} is downloaded to a new folder only",
                hint="Choose another --out, or remove that folder.",
            )
        objects = {name: (self._object_path(copy, name), size) for name, size in files.items()}
        stage = "downloading (bytes)"
        download_folder(self._system, self.url, objects, self._folder, partial(self._reporter.stage, stage))
        self._stored = {self._object_path(copy, name): state for name, state in self._local().items()}
        self._reporter.message("mirror", f"downloaded {self._folder} from {self.url}")

    def _object_path(self, copy: str, name: str) -> str:
        return f"{self._path}/{name}" if name.startswith(_KEPT) else f"{self._path}/{copy}/{name}"

    def _local(self) -> dict[str, tuple[int, int]]:
        """Return size and time of the files to copy, `run.json` last: all but older checkpoints."""
        files = [file for file in self._folder.rglob("*") if file.is_file()]
        names = {file.relative_to(self._folder).as_posix(): file for file in files}
        names = {name: file for name, file in names.items() if not is_hidden(name)}
        newest = f"checkpoints/{_newest(names)}/"
        states = {
            name: names[name].stat()
            for name in sorted(names, key=lambda name: (name == _RECORD, name))
            if not name.startswith("checkpoints/") or name.startswith(newest)
        }
        return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}

    def upload(self) -> None:
        """Copy the run directory, of a copy of the same checkpoint only what has changed."""
        files = self._local()
        if not (copy := _newest(files)):
            return
        # Only these stay the same as long as the checkpoint does.
        sizes = {name: size if name.endswith(".safetensors") else None for name, (size, _) in files.items()}
        latest = json.dumps({"request": self._request, "copy": copy, "files": sizes}).encode()
        with store_problems(self.url):
            if self._read_latest() != self._latest:
                raise DeviceError(
                    f"another process has written to {self.url}",
                    hint="Stop one of the two runs, or give each its own --mirror.",
                )
            for name, state in files.items():
                if self._stored.get(path := self._object_path(copy, name)) != state:
                    self._put(self._folder / name, path)
                    self._stored[path] = state
            if latest != self._latest:
                self._write(_LATEST, latest)
                self._latest = latest
            for path in self._system.ls(self._path, detail=False, refresh=True):
                if (old := path.rstrip("/").rpartition("/")[2]).startswith("step-") and old != copy:
                    with contextlib.suppress(FileNotFoundError):
                        self._system.rm(f"{self._path}/{old}", recursive=True)
            for path in self._system.find(f"{self._path}/{STABLE}"):  # An extension may have replaced it.
                if f"{STABLE}/" + path.rpartition(f"/{STABLE}/")[2] not in files:
                    with contextlib.suppress(FileNotFoundError):
                        self._system.rm_file(path)

    def try_upload(self) -> None:
        """Copy the run directory; a failure is a warning, and the next call is another attempt."""
        try:
            self.upload()
        except DeviceError as error:
            self._reporter.message(
                "warning", f"the upload to the mirror failed: {error.problem}; the next checkpoint tries again"
            )

    def finish(self) -> None:
        """Copy the run directory at the end; the error of a failure says how to repeat it."""
        try:
            self.upload()
        except DeviceError as error:
            raise DeviceError(
                f"the run is saved in {self._folder}, but the upload to the mirror failed: {error.problem}",
                hint="The same command copies the rest." + (f" {error.hint}" if error.hint else ""),
            ) from error

    def _read_latest(self) -> bytes:
        try:
            return bytes(self._system.cat_file(f"{self._path}/{_LATEST}"))
        except FileNotFoundError:
            return b""

    def _write(self, name: str, content: bytes) -> None:
        with self._new_object(f"{self._path}/{name}") as path:
            self._system.pipe_file(path, content)

    def _put(self, file: Path, path: str) -> None:
        with self._new_object(path) as temporary:
            self._system.put_file(str(file), temporary)

    @contextlib.contextmanager
    def _new_object(self, path: str) -> Iterator[str]:
        """Yield where to write an object: a store replaces it at once, a disk only by renaming."""
        if not self._is_on_disk:
            yield path
            return
        folder, _, last = path.rpartition("/")
        self._system.makedirs(folder, exist_ok=True)
        yield f"{folder}/.{last}.part"
        self._system.mv(f"{folder}/.{last}.part", path)


def _newest(names: Iterable[str]) -> str:
    """Return the folder name of the newest checkpoint, "step-000000007"; "" if there is none."""
    parts = [name.split("/") for name in names]
    return max((each[1] for each in parts if each[0] == "checkpoints" and len(each) > 2), default="")
