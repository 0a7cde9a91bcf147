"""Metrics as JSON lines: what training computed in one file, what the clock measured in another.

`metrics.jsonl` holds only numbers that the seed determines, so that an interrupted and resumed run's file equals an
uninterrupted one's, byte for byte. Speeds and times go to `timing.jsonl`. Both go to TensorBoard.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from maskwright.core.files import atomic_path, disk_problem


def worth_logging(step: int) -> bool:
    """Whether a step (from 1) gets a line: all of the first 1000, then every 10th, then every 100th after 10,000."""
    return step <= 1000 or step % (10 if step <= 10_000 else 100) == 0


class JsonLines:
    """An append-only file of JSON objects that each carry a "step".

    Args:
        path: The file; made if absent.
        last_step: Lines of later steps (written after the checkpoint that a run resumes from) are dropped, and so is
            a line that a kill cut short.
    """

    def __init__(self, path: Path, last_step: int) -> None:
        self.path = path
        if path.exists():
            with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as kept:
                for line, row in _whole_lines(path):
                    if row["step"] <= last_step:
                        kept.write(line)
        try:
            self._file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 (open as long as the run)
        except OSError as error:
            raise disk_problem(error, path) from error

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one object and hand it to the operating system."""
        try:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise disk_problem(error, self.path) from error

    def sync(self) -> None:
        """Make what was written safe from a power cut."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise disk_problem(error, self.path) from error

    def close(self) -> None:
        """Close the file; all lines were handed over already."""
        with contextlib.suppress(OSError):
            self._file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines of a metrics file; an absent file has none."""
    return [row for _, row in _whole_lines(path)] if path.exists() else []


def _whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return
            try:
                yield line, json.loads(line)
            except json.JSONDecodeError:
                return
