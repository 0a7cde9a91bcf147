"""`study.json`: what all runs of a study share, with the checksums of the study's text and tokenizers."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import CONTENTS, read_record, write_record
from maskwright.core.storage.files import checksum, disk_problems, remove_temporary
from maskwright.reporting.reporter import Reporter
from maskwright.training.ranks.distributed import rank
from maskwright.training.runs.run_directory import COPIES, lock_directory, unlock_directory

Part = TypeVar("Part")
STUDY = "study.json"
FORMAT = 4
"""Changes when recipes are fitted otherwise, so that no study mixes runs of both."""


class StudyRecord:
    """The content of a study's `study.json` and of its copy."""

    def __init__(self, folder: Path, content: Mapping[str, Any]) -> None:
        self.folder = folder
        self.content = dict(content)

    def write(self) -> None:
        if rank() == 0:
            for path in _paths(self.folder):
                write_record(path, self.content)

    def open_part(self, name: str, make: Callable[[Path], Part]) -> Part:
        """Make a folder of the study, or open it; raises CheckpointError if it is not the one that earlier runs used.

        `make` returns the part, and writes the folder if it is missing or damaged (`data.cache.open_or_build`).
        """
        folder, checksums = self.folder / name, self.content.setdefault("parts", {})
        part = make(folder)
        made = checksum(folder / CONTENTS)
        if name not in checksums:
            checksums[name] = made
            self.write()
        if made != checksums[name]:
            raise CheckpointError(
                f"{folder} was damaged, and is not the same if it is made again: the corpus or a library has changed",
                hint=f"Restore the corpus as it was and remove {folder}, or choose another --out.",
            )
        return part


def refuse_foreign(folder: Path) -> None:
    """Raise CheckpointError if a folder holds something else than a study."""
    # Dot files are a lock, remains of a kill, or the system's.
    names = sorted(path.name for path in folder.glob("[!.]*"))
    if names and not any(path.exists() for path in _paths(folder)):
        raise CheckpointError(
            f"{folder} is not empty and holds no study (found {', '.join(names[:3])})",
            hint="Choose an empty or new folder as --out.",
        )


def load_content(folder: Path, request: Mapping[str, Any], reporter: Reporter) -> dict[str, Any] | None:
    """Return what an earlier call wrote to `study.json`, or None; raises CheckpointError if it is another study's."""
    if not any(path.exists() for path in _paths(folder)):
        return None
    content: dict[str, Any] | None = None
    problems: list[str] = []
    for path in _paths(folder):
        try:
            content = read_record(path)
            break
        except ValueError as error:
            problems.append(str(error))
    if content is None:
        raise CheckpointError(
            f"{folder / STUDY} is damaged: {problems[0]}, and so is its copy",
            hint=f"Restore it from a backup, or remove {folder} to start again.",
        )
    for problem in problems:
        reporter.message("restored", f"{problem}: restored from a copy")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder} holds a study of another version of maskwright: its format is {content.get('format')!r}",
            allowed=str(FORMAT),
            hint="Continue it with the version that began it, or choose another --out.",
        )
    differing = [
        f"{key} was {content[key]!r}, now {value!r}" for key, value in request.items() if content[key] != value
    ]
    if differing:
        raise CheckpointError(
            f"{folder} holds another study: {'; '.join(differing)}",
            hint="Repeat the old corpus, cleaning and budget to add to it, or choose another --out.",
        )
    return content


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a study's directory while the block runs, and remove what kills have left in it."""
    is_new = not folder.exists()
    with disk_problems(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = lock_directory(folder)
    try:
        remove_temporary(folder)
        yield
    finally:
        unlock_directory(folder, descriptor, and_remove=is_new)


def _paths(folder: Path) -> tuple[Path, Path]:
    return folder / STUDY, folder / COPIES / STUDY
