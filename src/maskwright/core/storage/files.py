"""Atomic files and directories (write to a temporary sibling, flush, rename), JSON, checksums."""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.core.errors import DataError, DeviceError, JsonError, MaskwrightError, json_problem

MAX_JSON_BYTES = 1 << 26
"""Longest file that `read_json` reads."""
_in_use: dict[Path, int] = {}
"""Folders that this process works in, and the descriptor of each one's lock file; -1 for none."""


def disk_problem(error: OSError, path: Path) -> DeviceError:
    """Turn a failed write into an error with a remedy (full disk, no permission, read-only, a removed folder)."""
    if removed := _removal(path):
        return removed
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeviceError(
            f"the disk is full while writing {path}",
            hint="Free some space or choose a folder on another disk, then run the same command again; "
            "complete files are untouched.",
        )
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
        return DeviceError(
            f"cannot write {path}: something else exists there ({error.strerror})",
            hint="Choose another path, or remove it.",
        )
    return DeviceError(f"cannot write {path}: {error.strerror or error}", hint="Choose a folder you can write to.")


@contextlib.contextmanager
def disk_problems(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Turn failed writes of `path` into DeviceError; with `temporary`, errors that name a file elsewhere are kept."""
    try:
        yield
    except OSError as error:
        # The caller may have failed to read some other file. A full disk names no file.
        named = None if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.filename
        is_elsewhere = temporary is not None and named is not None and not Path(str(named)).is_relative_to(temporary)
        if is_elsewhere and not _removal(path):
            raise
        raise disk_problem(error, path) from error


def check_writable(folder: Path) -> None:
    """Raise DeviceError if a folder cannot be created or written; nothing is created."""
    with disk_problems(folder):
        existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\n")


def refuse_overwrite(out: Path | str, inputs: Iterable[object]) -> None:
    """Raise DataError if a file to be written is one of the inputs, also through a link; only paths are compared."""
    out = Path(out).expanduser()
    for path in (Path(each).expanduser() for each in inputs if isinstance(each, str | Path)):
        if out.exists() and path.exists() and out.samefile(path):
            raise DataError(f"{out} is the input file {path}; it would be overwritten", hint="Choose another --out.")


def mark_in_use(folder: Path, descriptor: int) -> None:
    """From now on, atomic writes in the folder are refused once it, or the open file in it, has been removed."""
    # Some file systems count no links.
    counts = descriptor >= 0 and os.fstat(descriptor).st_nlink > 0
    _in_use[folder.absolute()] = descriptor if counts else -1


def unmark_in_use(folder: Path) -> None:
    _in_use.pop(folder.absolute(), None)


def refuse_removed(path: Path) -> None:
    """Raise DeviceError if `path` is in a folder in use that has been removed."""
    if removed := _removal(path):
        raise removed


def _removal(path: Path) -> DeviceError | None:
    for folder, descriptor in _in_use.items():
        if path.absolute().is_relative_to(folder):
            has_lock = descriptor < 0 or os.fstat(descriptor).st_nlink > 0
            if not (has_lock and folder.exists()):
                return DeviceError(
                    f"{folder} was removed while this process worked in it",
                    hint="Nothing more was written there. The same command starts again.",
                )
    return None


def _make_parent(path: Path) -> None:
    refuse_removed(path)
    path.parent.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling to write; on success it replaces `path`, on failure it is removed.

    Raises DeviceError if the disk is full or cannot be written.
    """
    temporary = _sibling(path)
    with disk_problems(path):
        _make_parent(path)
        temporary.touch(exist_ok=False)
    try:
        with disk_problems(path, temporary):
            yield temporary
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
            _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling folder to fill; on success it becomes `path` (which must not exist).

    Raises DeviceError if the disk is full or cannot be written, or something is at `path` already.
    """
    with disk_problems(path):
        _make_parent(path)
        # Held while this process lives; `remove_abandoned` may have removed the folder before it was locked.
        handle = None
        while handle is None:
            (temporary := _sibling(path)).mkdir()
            with contextlib.suppress(FileNotFoundError):
                handle = lock(temporary)
    try:
        with disk_problems(path, temporary):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    with open(file, "rb+") as written:
                        os.fsync(written.fileno())
                elif file.is_dir():
                    _flush_folder(file)
            _flush_folder(temporary)
            os.rename(temporary, path)
            _flush_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if handle >= 0:
            os.close(handle)


def remove_abandoned(parent: Path) -> None:
    """Remove temporary folders of `atomic_folder` whose process has been killed."""
    for left in filter(is_temporary, parent.glob(".*.tmp/")):
        with contextlib.suppress(OSError):
            if (handle := lock(left, wait=False)) >= 0:
                shutil.rmtree(left, ignore_errors=True)
                os.close(handle)


def remove_temporary(folder: Path) -> None:
    """Remove what killed processes left of `atomic_path` and `atomic_folder`, at any depth; no other process may write
    there.
    """
    for left in filter(is_temporary, list(folder.rglob(".*.tmp"))):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Return whether a file or folder has a name that only this module gives, while it writes."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.tmp", path.name) is not None


def set_default_mode(path: Path) -> None:
    """Give a file the mode that the umask gives to new files; safetensors lets only its owner read it."""
    new = _sibling(path)
    try:
        new.touch(exist_ok=False)
        mode = stat.S_IMODE(new.stat().st_mode)
    finally:
        new.unlink(missing_ok=True)
    # Not where all files have one mode, and it cannot be changed.
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def _sibling(path: Path) -> Path:
    # Made with the modes that the umask gives, which those of `tempfile` are not.
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")


def lock(path: Path, *, wait: bool = True, flags: int = os.O_RDONLY) -> int:
    """Lock a file or folder until the descriptor that is returned is closed; -1 where there are no such locks.

    Args:
        flags: For opening it; a file may be created.

    Raises BlockingIOError if another process has locked it, unless this one is to wait; OSError if it cannot be opened,
    or does not exist once it is locked.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return -1
    handle = os.open(path, flags, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        path.stat()
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.ENOENT, errno.EWOULDBLOCK):
            raise
        if error.errno == errno.EACCES and not wait:  # What some systems say of a lock that another process holds.
            raise BlockingIOError(error.errno, error.strerror) from error
        return -1  # a file system without locks
    return handle


def _flush_folder(folder: Path) -> None:
    # A rename survives a power cut only once the folder itself is on disk. Windows cannot open folders.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, UTF-8 with newline line ends; lone surrogates, as in file names, are escaped."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically (see `json_text`)."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Return JSON: indented, keys in the order given, non-ASCII kept readable."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to read its bytes; OSError for a pipe or device, which may block or never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(path, "rb")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON that may be hostile; any fault of it is a ValueError, with the reason (see `json_problem`)."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:  # Python limits the digits, because reading them takes quadratic time.
        raise ValueError("a number has more than 4,300 digits") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: Path) -> Any:
    """Read a JSON file, of at most `MAX_JSON_BYTES`.

    Raises FileNotFoundError if there is none, JsonError, which is a ValueError, if it cannot be read or is not JSON.
    """
    try:
        with open_file(path) as file:
            data = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JsonError(f"cannot read {path}: {error.strerror}", hint="Check that it is a file you may read") from error
    try:
        if len(data) > MAX_JSON_BYTES:
            raise ValueError(f"it is longer than {MAX_JSON_BYTES:,} bytes")
        return parse_json(data.decode("utf-8"))
    except ValueError as error:
        line = f"line {error.lineno}, " if isinstance(error, json.JSONDecodeError) else ""
        raise JsonError(
            f"{path} is not valid JSON: {line}{json_problem(error)}", hint="Restore, download or write it again"
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object; errors as of `read_json`, also for any other type."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise JsonError(
            f"{path} contains {'null' if value is None else f'a {type(value).__name__}'}",
            allowed="a JSON object",
            hint="Restore, download or write it again",
        )
    return value


def read_if_exists(path: Path) -> dict[str, Any]:
    """Read a JSON object as `read_object` does; an empty one if there is no file."""
    return read_object(path) if path.is_file() else {}


@contextlib.contextmanager
def records_of(folder: Path, names: str) -> Iterator[None]:
    """Turn what fails because the named files are missing, or have entries of another type, into DataError."""
    try:
        yield
    except (MaskwrightError, ImportError):
        raise
    except Exception as error:  # Templates and plots have exceptions of their own.
        raise DataError(
            f"{names} in {folder} cannot be used: {type(error).__name__}: {error}",
            hint="Restore what is damaged or missing from a copy",
        ) from error


def checksum(content: Path | bytes) -> str:
    """Return the BLAKE2b-128 checksum of a file or of bytes as hexadecimal digits, in constant memory."""
    digest = hashlib.blake2b(digest_size=16)
    with io.BytesIO(content) if isinstance(content, bytes) else open_file(content) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the cache directory: $MASKWRIGHT_CACHE, else the user's."""
    if chosen := os.environ.get("MASKWRIGHT_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "maskwright"
