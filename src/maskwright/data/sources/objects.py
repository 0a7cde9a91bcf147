"""Objects of a store as corpus files: copied once into the cache directory, then read as local files.

A copy's folder is named by store, path, size and what the store says of the version, so a changed object is fetched
again. Where a store says nothing (some web servers), the first copy is used.
"""

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.object_stores import download, is_hidden, open_store, store_problems
from maskwright.data.cache import open_or_build
from maskwright.reporting.reporter import Progress

_VERSIONS = (
    *("etag", "md5hash", "content-md5", "crc32c"),
    *("mtime", "last_modified", "lastmodified", "last-modified", "updated", "created"),
)
"""Names of the checksum and time of an object in different stores, in lower case. The first that is known is used."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store: the URL by which it was found, its path there, size in bytes if known, and version."""

    url: str
    path: str
    size: int | None
    version: str

    @property
    def name(self) -> Path:
        """Its path without the query of a web address; not one of this machine."""
        return Path(self.path.partition("?")[0])


def list_objects(url: str) -> list[StoredObject]:
    """Return the object of this name, else all of a folder or all that match a pattern, in order.

    Raises DeviceError if the store cannot be used (see `core.storage.object_stores`).
    """
    system, path = open_store(url)
    with store_problems(url):
        try:
            is_folder = system.info(path)["type"] == "directory"
            paths = (
                [each for each in system.find(path) if not is_hidden(each.removeprefix(path))] if is_folder else [path]
            )
        except FileNotFoundError:
            if not glob.has_magic(path):
                raise
            matches = system.glob(path, detail=True)
            paths = [each for each, info in matches.items() if info["type"] != "directory"]
        return [_described(url, each, system.info(each)) for each in sorted(paths)]


def _described(url: str, path: str, info: dict[str, Any]) -> StoredObject:
    known = {key.lower(): value for key, value in info.items() if value}
    version = next((f"{name}: {known[name]}" for name in _VERSIONS if name in known), "")
    if not version and not url.startswith("http"):
        version = str(sorted((key, str(value)) for key, value in known.items()))
    return StoredObject(url, path, info.get("size"), version)


def fetch(objects: Sequence[StoredObject], cache: Path, progress: Progress) -> tuple[Path, ...]:
    """Return local copies of objects, downloaded if the cache directory has none of this version.

    Raises DataError if an object arrives with another size than the store says, DeviceError if the store cannot be
    used, or the cache directory's disk is full.
    """
    files, done, total = [], 0, sum(each.size or 0 for each in objects)
    for each in objects:
        key = fingerprint([each.url.partition(":")[0], each.path, each.size, each.version])

        def arrived(_: int | None, count: int, before: int = done) -> None:
            progress("fetching (bytes)", before + count, total or None)

        make = partial(_download, each, arrived)
        files.append(open_or_build(cache / f"object-{key}", partial(_checked, each), make, ("*",)))
        done += each.size or 0
    return tuple(files)


def _download(stored: StoredObject, on_bytes: Callable[[int | None, int], None], folder: Path) -> None:
    system, _ = open_store(stored.url)
    with store_problems(stored.url):
        download(system, stored.path, folder / stored.name.name, on_bytes)


def _checked(stored: StoredObject, folder: Path) -> Path:
    file = folder / stored.name.name
    size = file.stat().st_size if file.exists() else 0
    if not file.exists() or stored.size not in (None, size):
        expected = "" if stored.size is None else f" of {stored.size:,}"
        raise DataError(f"{file}, fetched from {stored.url}, has {size:,}{expected} bytes", hint="Try again.")
    return file
