"""Damage to files, and what a folder holds."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path


def flip_bit(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path) -> None:
    path.write_bytes(b"")


HARMS: Mapping[str, Callable[[Path], object]] = {
    "flip": flip_bit,
    "cut": cut_short,
    "empty": empty,
    "delete": Path.unlink,
}


def contents(folder: Path, *without: str) -> dict[str, bytes]:
    """Return the content of the files of a folder by name, without hidden ones and some others."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in sorted(paths.items())
        if not path.name.startswith(".") and not name.startswith(without)
    }


def without_times(file: Path) -> bytes:
    """Return a file's bytes; of JSON without the seconds and speeds of training, and the checksum of the rest."""
    times = rb',?\s*"(seconds|examples_per_second|checksum)": ("\w*"|[0-9.e-]+)'
    return re.sub(times, b"", file.read_bytes()) if file.suffix == ".json" else file.read_bytes()
