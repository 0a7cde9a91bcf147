"""Cache directories: opened if present, rebuilt if damaged, never left half written."""

import contextlib
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from maskwright.core.errors import DataError, DeviceError
from maskwright.core.storage.checksums import CONTENTS, compare_files, file_checksums, read_record, write_record
from maskwright.core.storage.files import atomic_folder, remove_abandoned

Opened = TypeVar("Opened")


def open_or_build(
    folder: Path,
    open_folder: Callable[[Path], Opened],
    make: Callable[[Path], object],
    checked_when_read: tuple[str, ...] = (),
) -> Opened:
    """Open a cached folder, or build it and open it.

    Two processes may build the same folder at once; the first to finish wins.

    Args:
        folder: Its name contains the fingerprint of its inputs.
        open_folder: Raises DataError if the folder is damaged, which is then rebuilt with a warning.
        checked_when_read: Patterns of large files, which have checksums of their own (`core.storage.checksums`). All
            others are compared with theirs before `open_folder` is called.

    Raises DeviceError if it cannot be written.
    """

    damaged = folder.exists()
    if damaged:
        try:
            return open_checked(folder, open_folder)
        except DataError as error:
            warnings.warn(f"prepared data is damaged and is rebuilt: {error.problem}", stacklevel=3)
    remove_abandoned(folder.parent)
    try:
        with atomic_folder(folder) as temporary:
            make(temporary)
            write_record(temporary / CONTENTS, file_checksums(temporary, without=checked_when_read))
            if damaged:
                shutil.rmtree(folder, ignore_errors=True)
    except DeviceError:
        # Another process may have finished the same folder in the meantime.
        with contextlib.suppress(DataError):
            return open_checked(folder, open_folder)
        raise
    return open_checked(folder, open_folder)


def open_checked(folder: Path, open_folder: Callable[[Path], Opened]) -> Opened:
    """Compare the checksums of a folder of `open_or_build` and open it; raises DataError if it is damaged."""
    try:
        compare_files(folder, read_record(folder / CONTENTS))
    except ValueError as error:
        raise DataError(f"{folder}: {error}") from error
    return open_folder(folder)
