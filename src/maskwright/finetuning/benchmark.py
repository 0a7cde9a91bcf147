"""What a benchmark is: a row of data. Files, columns, labels, metrics, published settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from maskwright.core.errors import DataError, nearest
from maskwright.data.sources.files import COMPRESSIONS
from maskwright.finetuning.readers import Kind, ReadOptions

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

Files = str | tuple[str, ...]
"""One file (or folder) of a split, or several that make it up together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: As `--task` takes it.
        title: As papers write it.
        kind: The kind of task, as `Task.kind` names it.
        language: "en" or "zh".
        folders: Usual names of its folder inside a folder of several benchmarks.
        files: Usual places of each split inside the benchmark's folder; the first that is there is taken.
        options: How its files are read. Labels are as the files write them.
        metrics: What is reported, the main one first; empty where a script decides it, which `task_fields` name.
        labels: The classes in the order of the head's scores; empty where the training file decides or there are none.
        task_fields: Further fields of the task.
        epochs: Passes over the training examples.
        learning_rate: The peak.
        batch_size: Units in a step.
        max_length: Tokens of a sequence at most, special ones counted.
    """

    name: str
    title: str
    kind: Kind
    language: Literal["en", "zh"]
    folders: tuple[str, ...] = ()
    files: Mapping[Split, tuple[Files, ...]]
    options: ReadOptions = field(default_factory=ReadOptions)
    metrics: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    task_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    epochs: float
    learning_rate: float
    batch_size: int
    max_length: int

    def find(self, folder: str | Path) -> dict[Split, tuple[Path, ...]]:
        """Find the files of the splits in a folder that is laid out as published.

        Args:
            folder: The benchmark's folder, or one that holds it under its usual name ("glue").

        Returns:
            The files of each split that is there; some benchmarks are published without labels for one.

        Raises:
            DataError: If the folder is missing, or holds none of the files.
        """
        folder = Path(folder).expanduser()
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise DataError(
                f"the folder {folder} for {self.title} {what}",
                todo="Name the folder with its files, or name the files themselves (train, dev, test).",
            )
        for place in (folder, *(folder / name for name in self.folders)):
            found = {split: files for split in SPLITS if (files := self._of_split(split, place))}
            if found:
                return found
        raise self._nothing_in(folder)

    def _of_split(self, split: Split, folder: Path) -> tuple[Path, ...]:
        for names in self.files.get(split, ()):
            paths = [_existing(folder / name) for name in ((names,) if isinstance(names, str) else names)]
            if all(path is not None for path in paths):
                return tuple(path for path in paths if path is not None)
        return ()

    def _nothing_in(self, folder: Path) -> DataError:
        usual = [name for split in SPLITS for names in self.files.get(split, ()) for name in _as_tuple(names)]
        there = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        shown = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "") if there else "nothing"
        guess = next((found for name in usual if (found := nearest(name, there))), None)
        near = f"; {guess!r} is near" if guess else ""
        return DataError(
            f"{folder} holds no files of {self.title}, only {shown}" if there else f"{folder} is empty",
            allowed=", ".join(dict.fromkeys(usual)),
            todo=f"Rename them, or name the files themselves (train, dev, test){near}.",
        )


def _as_tuple(names: Files) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _existing(path: Path) -> Path | None:
    candidates = (path, *(path.with_name(path.name + ending) for ending in COMPRESSIONS))
    return next((candidate for candidate in candidates if candidate.exists()), None)
