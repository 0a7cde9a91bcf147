"""Atomic files and directories (write to a temporary sibling, flush, rename), JSON, checksums."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maskwright.core.errors import DeviceError


def disk_problem(error: OSError, path: Path) -> DeviceError:
    """Turn a failed write into an error with a remedy (full disk, no permission, read-only)."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeviceError(
            f"the disk is full while writing {path}",
            todo="Free some space or choose a folder on another disk, then run the same command again; "
            "complete files are untouched.",
        )
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
        return DeviceError(
            f"cannot write {path}: something else exists there ({error.strerror})",
            todo="Choose another place, or remove it.",
        )
    return DeviceError(f"cannot write {path}: {error.strerror or error}", todo="Choose a folder you can write to.")


def check_writable(folder: Path) -> None:
    """Raise DeviceError if a folder cannot be created or written; nothing is created."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"\n")
    except OSError as error:
        raise disk_problem(error, folder) from error


def _concerns(error: OSError, temporary: Path) -> bool:
    # The caller may have failed to read some other file. A full disk names no file.
    return error.filename is None or Path(str(error.filename)).is_relative_to(temporary)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling to write; on success it replaces `path`, on failure it is removed.

    Raises:
        DeviceError: If the disk is full or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
    except OSError as error:
        raise disk_problem(error, path) from error
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except OSError as error:
        if not _concerns(error, temporary):
            raise
        raise disk_problem(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling folder to fill; on success it becomes `path` (which must not exist).

    Raises:
        DeviceError: If the disk is full or cannot be written, or something is at `path` already.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    except OSError as error:
        raise disk_problem(error, path) from error
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with open(file, "rb+") as written:
                    os.fsync(written.fileno())
            elif file.is_dir():
                _flush_folder(file)
        _flush_folder(temporary)
        temporary.chmod(0o755)
        os.rename(temporary, path)
        _flush_folder(path.parent)
    except OSError as error:
        if not _concerns(error, temporary):
            raise
        raise disk_problem(error, path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush_folder(folder: Path) -> None:
    # A rename survives a power cut only once the folder itself is on disk. Windows cannot open folders.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, UTF-8 with newline line ends."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: indented, keys in the order given, non-ASCII kept readable."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; errors are those of the standard library."""
    return json.loads(path.read_text(encoding="utf-8"))


def checksum(path: Path) -> str:
    """Return the BLAKE2b-128 checksum of a file as hexadecimal digits, read in constant memory."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the cache directory: $MASKWRIGHT_CACHE, else the user's."""
    if chosen := os.environ.get("MASKWRIGHT_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "maskwright"
