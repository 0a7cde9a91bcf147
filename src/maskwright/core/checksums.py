"""A cache of file checksums; a file is read again only if its size or modification time has changed."""

import contextlib
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from maskwright.core.errors import DeviceError
from maskwright.core.files import checksum, read_json, write_text

CHECKSUMS = "checksums.json"
"""Its file name in a cache directory."""


class ChecksumBook:
    """Checksums of files by path in a JSON file; a context manager that writes new ones when it ends.

    An unreadable file counts as empty; write failures are ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = _read(path)
        self._new: dict[str, list[int | str]] = {}

    def known(self, path: Path) -> str | None:
        """Return a file's checksum if the cached one is current.

        Raises:
            OSError: If there is no such file.
        """
        place, state = _place_and_state(path)
        held = self._new.get(place) or self._held.get(place)
        return str(held[2]) if isinstance(held, list) and len(held) == 3 and held[:2] == state else None

    def checksum(self, path: Path) -> str:
        """Return a file's checksum (see `core.files.checksum`), cached or computed.

        Raises:
            OSError: If it cannot be read.
        """
        if (found := self.known(path)) is None:
            # The state before reading, so that the entry is stale if the file changes meanwhile.
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
            # Other processes may have written since; entries of deleted files are dropped.
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
