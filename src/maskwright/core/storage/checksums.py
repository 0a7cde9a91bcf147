"""Checksums that are compared before a file is used.

| what | checksums are in | compared |
|---|---|---|
| a JSON record (`run.json`, a checkpoint's `state.json`) | the record itself ("checksum") | whenever it is read |
| files of a run, a seed of a fine-tuning, a checkpoint or a cache folder | such a record | when it is used again |
| token shards, by blocks (`data.shards.checked_array`) | a file beside them | when a process first reads a block |
| files of a corpus | `ChecksumCache`, in the cache directory | if a file's size or times have changed |
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

from maskwright.core.errors import DataError, DeviceError, JsonError
from maskwright.core.storage.files import checksum, json_text, read_json, write_text

CHECKSUMS = "checksums.json"
"""File name of a `ChecksumCache` in a cache directory."""
CONTENTS = "contents.json"
"""File name of the record in a cache folder."""


def refuse_unreadable(path: Path, error: Exception) -> None:
    """Raise DeviceError if the error is that of an existing file that cannot be read now: it may be intact."""
    cause = error.__cause__ if isinstance(error, JsonError) else error
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | NotADirectoryError):
        raise DeviceError(
            f"cannot read {path}: {cause.strerror or cause}",
            hint="Check its permissions, its disk and the limit of open files (`ulimit -n`), then run the same command "
            "again; nothing was deleted. If it stays unreadable, delete the folder that holds it.",
        ) from error


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object with its own checksum."""
    write_text(path, record_text(record))


def record_text(record: Mapping[str, Any]) -> str:
    return json_text({**record, "checksum": _checksum_of(record)})


def damaged_files(folder: Path, checksums: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each file of a folder that is missing or is damaged.

    Raises DeviceError if one exists but cannot be read.
    """
    problems = {}
    for name, written in checksums.items():
        try:
            compare_files(folder, {name: written})
        except ValueError as error:
            problems[name] = str(error)
    return problems


def read_record(path: Path) -> dict[str, Any]:
    """Read what `write_record` wrote.

    Raises ValueError if it is missing, or is damaged; DeviceError if it exists but cannot be read.
    """
    try:
        record = read_json(path)
    except (OSError, ValueError) as error:
        refuse_unreadable(path, error)
        if isinstance(error, FileNotFoundError):
            raise ValueError(f"{path.name} is missing") from error
        raise ValueError(f"{path.name} cannot be read ({getattr(error, 'problem', None) or error})") from error
    if not isinstance(record, dict) or "checksum" not in record:
        raise ValueError(f"{path.name} has no checksum (it is damaged, or an earlier version wrote it)")
    if record.pop("checksum") != _checksum_of(record):
        raise ValueError(f"{path.name} is damaged (its checksum differs)")
    return record


def record_problem(path: Path) -> str | None:
    """Return what is wrong with an existing record; None if nothing is, or there is none."""
    try:
        if path.exists():
            read_record(path)
    except ValueError as error:
        return str(error)
    return None


def _checksum_of(record: Mapping[str, Any]) -> str:
    return checksum(json.dumps(record).encode())


def file_checksums(folder: Path, *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return the checksums of the files in a folder by relative path, `without` those that match a pattern."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: checksum(folder / name) for name in names if not any(fnmatch(name, each) for each in without)}


def compare_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Compare files of a folder with their checksums.

    Raises ValueError, which names the first that is missing or damaged; DeviceError if one exists but cannot be read.
    """
    for name, written in checksums.items():
        try:
            actual = checksum(folder / name)
        except OSError as error:
            refuse_unreadable(folder / name, error)
            raise ValueError(f"{name} is missing") from error
        if actual != written:
            raise ValueError(f"{name} is damaged (its checksum differs)")


def damaged_file_error(path: Path, problem: str) -> DataError:
    """Return the error for a damaged file of a cache folder, which the next call of `open_or_build` rebuilds."""
    folder = next((parent for parent in path.parents if (parent / CONTENTS).is_file()), path.parent)
    with contextlib.suppress(OSError):
        (folder / CONTENTS).unlink()
    return DataError(f"{path} is damaged: {problem}", hint=f"Run the same command again: {folder} is then rebuilt.")


class ChecksumCache:
    """Checksums of files by path in a JSON file; a context manager that writes new ones when it ends.

    A file is read again only if its size or times have changed. The time of the last change of its status cannot be
    set, so an edit that keeps the modification time is noticed.

    An unreadable file counts as empty; write failures are ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = _read(path)
        self._new: dict[str, list[int | str]] = {}

    def known(self, path: Path) -> str | None:
        """Return a file's checksum if the cached one is current.

        Raises OSError if there is no such file.
        """
        name, state = _name_and_state(path)
        held = self._new.get(name) or self._held.get(name)
        return str(held[-1]) if isinstance(held, list) and held[:-1] == state else None

    def checksum(self, path: Path) -> str:
        """Return a file's checksum (see `core.storage.files.checksum`), cached or computed.

        Raises OSError if it cannot be read.
        """
        if (digest := self.known(path)) is None:
            # The state before reading, so that the entry is stale if the file changes meanwhile.
            name, state = _name_and_state(path)
            digest = checksum(path)
            self._new[name] = [*state, digest]
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._new:
            # Other processes may have written since; entries of deleted files are dropped.
            entries = {**_read(self._path), **self._new}
            kept = {name: entry for name, entry in entries.items() if Path(name).exists()}
            with contextlib.suppress(DeviceError):
                write_text(self._path, json.dumps(kept))


def _name_and_state(path: Path) -> tuple[str, list[int | str]]:
    status = path.stat()
    return str(path.resolve()), [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read(path: Path) -> dict[str, Any]:
    try:
        entries = read_json(path)
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
