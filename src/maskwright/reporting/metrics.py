"""Files of metrics: JSON lines, one per recorded step."""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.storage.files import atomic_path, disk_problems


def worth_logging(step: int) -> bool:
    """Return whether a step (from 1) gets a line: the first 1000, then every 10th, after 10,000 every 100th."""
    return step <= 1000 or step % (10 if step <= 10_000 else 100) == 0


class JsonLines:
    """An append-only file of JSON objects that each carry a "step".

    Lines of steps after `last_step` (written after the checkpoint that a run resumes from) are dropped, and so are a
    truncated last line and, with a warning, others that cannot be read.
    """

    def __init__(self, path: Path, last_step: int) -> None:
        if path.exists():
            with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as kept:
                for line, row in _whole_lines(path):
                    if row["step"] <= last_step:
                        kept.write(line)
        self._disk_problems = partial(disk_problems, path)
        with self._disk_problems():
            self._file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 (open as long as the run)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one object and hand it to the operating system."""
        with self._disk_problems():
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()

    def sync(self) -> None:
        with self._disk_problems():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a metrics file; none if there is no file. Lines that cannot be read are left out."""
    return [row for _, row in _whole_lines(path)] if path.exists() else []


def curve(path: Path, name: str) -> list[tuple[float, float]]:
    """Return (tokens trained, value) of a number in a metrics file along training."""
    tokens, points = 0.0, []
    for row in read_rows(path):
        tokens = row.get("tokens", tokens)
        if name in row:
            points.append((tokens, row[name]))
    return points


def _whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line with its row; warn of lines that cannot be read, but for a last one that a kill has truncated."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                text = line.decode()
                row = json.loads(text)
                if not isinstance(row["step"], int):
                    raise TypeError
            except (ValueError, KeyError, TypeError, RecursionError):
                warnings.warn(f"line {number} of {path} cannot be read and is left out", stacklevel=3)
            else:
                yield text, row
