"""Checksums that are computed once: a file is read again only when its size or time of change is another."""

import contextlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from maskwright.core.errors import DeviceError
from maskwright.core.files import checksum, read_json, write_text

CHECKSUMS = "checksums.json"
"""The name of the book in a cache folder."""


class ChecksumBook:
    """Checksums of files by path, kept in a JSON file; a context manager that writes what is new when it ends.

    A book is only a saving of time: one that cannot be read counts as empty, one that cannot be written is let be.

    Args:
        path: The book's file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = _read(path)
        self._new: dict[str, list[int | str]] = {}

    def known(self, path: Path) -> str | None:
        """Return a file's checksum if it is known of the file as it is now.

        Raises:
            OSError: If there is no such file.
        """
        place, state = _place_and_state(path)
        held = self._new.get(place) or self._held.get(place)
        return str(held[2]) if isinstance(held, list) and len(held) == 3 and held[:2] == state else None

    def checksum(self, path: Path) -> str:
        """Return a file's checksum (see `core.files.checksum`), read from the book or from the file.

        Raises:
            OSError: If it cannot be read.
        """
        if (found := self.known(path)) is None:
            # The state before reading: should the file change meanwhile, the entry does not fit it.
            place, state = _place_and_state(path)
            found = checksum(path)
            self._new[place] = [*state, found]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._new:
            # Others may have written since; files that are gone are forgotten.
            entries = {**_read(self._path), **self._new}
            kept = {place: entry for place, entry in entries.items() if Path(place).exists()}
            with contextlib.suppress(DeviceError):
                write_text(self._path, json.dumps(kept))


def _place_and_state(path: Path) -> tuple[str, list[int | str]]:
    status = path.stat()
    return str(path.resolve()), [status.st_size, status.st_mtime_ns]


def _read(path: Path) -> dict[str, Any]:
    try:
        entries = read_json(path)
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
