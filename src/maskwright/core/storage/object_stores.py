"""Object stores (`s3://`, `gs://`, `https://`, `file://`) through fsspec, with errors that name URL, cause and remedy.

fsspec comes with PyTorch. The package of a store (`s3fs`, `gcsfs`, `aiohttp`) is installed by who uses that store.
"""

import contextlib
import errno
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from maskwright.core.errors import DeviceError, MaskwrightError, first_line, nearest
from maskwright.core.storage.files import atomic_folder, remove_abandoned

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # Two characters at least: not the drive of a path of Windows.
_CREDENTIALS = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "gs": "GOOGLE_APPLICATION_CREDENTIALS"}
_EXAMPLES = "s3://BUCKET/PATH, gs://BUCKET/PATH, https://HOST/PATH, file://FOLDER, or another kind that fsspec knows"


def is_url(text: str) -> bool:
    """Return whether a text begins as a URL does."""
    return _URL.match(text) is not None


def is_hidden(path: str) -> bool:
    """Return whether a part of a path begins with a dot; "." and ".." do."""
    return any(part.startswith(".") for part in path.split("/"))


def open_store(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it.

    Raises DeviceError if it is no URL, of no known kind, or its package is not installed.
    """
    if not (kind := _URL.match(url)):
        raise DeviceError(f"{url!r} is not a URL", allowed=_EXAMPLES)
    import fsspec

    if kind[1] not in (known := fsspec.available_protocols()):
        guess = nearest(kind[1], known)
        hint = f"Did you mean '{guess}://'?" if guess else ""
        raise DeviceError(f"{url}: unknown kind of store {kind[1]!r}", allowed=_EXAMPLES, hint=hint)
    with store_problems(url):
        system, path = fsspec.url_to_fs(url)
        system.invalidate_cache()  # Instances live as long as the process, and so would what they have listed.
        return system, path


def download(system: Any, path: str, file: Path, on_bytes: Callable[[int | None, int], None]) -> None:
    """Download an object to a new file; `on_bytes(size, done)` is called while it arrives."""
    from fsspec.callbacks import Callback

    file.parent.mkdir(parents=True, exist_ok=True)
    system.get_file(path, str(file), callback=Callback(hooks={"": lambda size, done, **_: on_bytes(size, done)}))


def download_folder(
    system: Any,
    url: str,
    objects: Mapping[str, tuple[str, int | None]],
    folder: Path,
    on_bytes: Callable[[int, int], None],
) -> None:
    """Download objects to a new folder, all or none.

    Args:
        objects: For each file in the folder the object's path and its size in bytes, None if that is not known.
        on_bytes: Called with the bytes that have arrived, and all of known sizes.

    Raises DeviceError if a file would lie outside the folder, an object arrives with another size, or the store cannot
    be used.
    """
    for name in objects:
        if PurePath(name).is_absolute() or is_hidden(name):
            raise DeviceError(
                f"{url} names the file {name!r}",
                allowed="files below it, none hidden",
                hint="Its list is damaged: write it again.",
            )
    remove_abandoned(folder.parent)
    done, total = 0, sum(size or 0 for _, size in objects.values())
    with atomic_folder(folder) as temporary:
        for name, (path, size) in objects.items():

            def arrived(_: int | None, count: int, before: int = done) -> None:
                on_bytes(before + count, total)

            with store_problems(url):
                download(system, path, temporary / name, arrived)
            arrived_size = (temporary / name).stat().st_size
            if size not in (None, arrived_size):
                problem = f"{path} of {url} has {arrived_size:,} of {size or 0:,} bytes"
                raise DeviceError(problem, hint="Run the same command again.")
            done += arrived_size


@contextlib.contextmanager
def store_problems(url: str) -> Iterator[None]:
    """Turn errors in the block, which copies from or to a store, into DeviceError."""
    try:
        yield
    except MaskwrightError:
        raise
    except ImportError as error:
        raise DeviceError(f"{url} needs a package that is not installed", hint=f"{error}.") from error
    except Exception as error:  # Each store raises classes of its own, of several packages.
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "Free some space, then run the same command again."
            raise DeviceError(f"the disk is full while {url} is copied", hint=hint) from error
        reason = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, FileNotFoundError):
            reason = f"it, or its bucket, does not exist ({error})"
        credentials = _CREDENTIALS.get(url.partition(":")[0])
        hint = "Check the URL, the connection and the permissions" + (
            f" (credentials: {credentials})." if credentials else "."
        )
        raise DeviceError(f"cannot access {url}: {reason}", hint=hint) from error
