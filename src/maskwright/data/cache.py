"""Cache directories: opened if present, rebuilt if damaged, never left half written."""

import contextlib
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from maskwright.core.errors import DataError, DeviceError
from maskwright.core.files import atomic_folder

Opened = TypeVar("Opened")

_STALE_SECONDS = 24 * 3600


def open_or_build(folder: Path, open_folder: Callable[[Path], Opened], make: Callable[[Path], object]) -> Opened:
    """Open a cached folder, or build it and open it.

    Two processes may build the same folder at once; the first to finish wins.

    Args:
        folder: Its name contains the fingerprint of its inputs.
        open_folder: Raises DataError if the folder is damaged, which is then rebuilt with a warning.
        make: Fills an empty folder.

    Raises:
        DeviceError: If it cannot be written.
    """
    damaged = folder.exists()
    if damaged:
        try:
            return open_folder(folder)
        except DataError as error:
            warnings.warn(f"cached data is damaged and is rebuilt: {error.problem}", stacklevel=3)
    _remove_stale(folder)
    try:
        with atomic_folder(folder) as temporary:
            make(temporary)
            if damaged:
                shutil.rmtree(folder, ignore_errors=True)
    except DeviceError:
        # Another process may have finished the same folder in the meantime.
        with contextlib.suppress(DataError):
            return open_folder(folder)
        raise
    return open_folder(folder)


def _remove_stale(folder: Path) -> None:
    # A killed process cannot remove its temporary folder; a running one wrote to it within the day.
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - max(path.stat().st_mtime for path in (left, *left.iterdir())) > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
