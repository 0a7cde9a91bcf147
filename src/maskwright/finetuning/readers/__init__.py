"""Labeled files as examples: `read_examples` reads any kind of task, from one file or several."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.examples import ExampleFile
from maskwright.finetuning.readers.options import Kind, ReadOptions, with_defaults
from maskwright.finetuning.readers.questions import read_choices, read_questions
from maskwright.finetuning.readers.tagged import read_tagged
from maskwright.finetuning.readers.texts import read_texts

Paths = str | Path | Sequence[str | Path]

_READERS: Mapping[str, Callable[[Path, ReadOptions], ExampleFile[Any]]] = {
    "tagging": read_tagged,
    "question_answering": read_questions,
    "multiple_choice": read_choices,
}
"""By kind of task; other kinds are texts."""


def read_examples(paths: Paths, kind: Kind, options: ReadOptions = ReadOptions()) -> ExampleFile[Any]:
    """Read the examples of a labeled file, or of several as one (C3 has two files for each split).

    Later files are read as the first one was. RACE is a folder. What the options leave open is guessed, and the notes
    list it. DataErrors name the file, the line, what was found and what to do.
    """
    files: list[ExampleFile[Any]] = []
    for path in [paths] if isinstance(paths, str | Path) else paths:
        as_first = with_defaults(options, files[0].read_as) if files else options
        path = Path(path).expanduser()
        files.append(_READERS[kind](path, as_first) if kind in _READERS else read_texts(path, kind, as_first))
    if not files:
        raise DataError("no file was given", allowed="one file or more")
    return as_one(files)


def as_one(files: Sequence[ExampleFile[Any]]) -> ExampleFile[Any]:
    """Return the examples of several files as one file; if keys clash, they become "FILE:KEY"."""
    if len(files) == 1:
        return files[0]
    keys = [example.key for file in files for example in file.examples]
    clash = len(set(keys)) < len(keys)  # line numbers occur again in every file
    names = [Path(file.name).name for file in files]
    names = names if len(set(names)) == len(names) else [file.name for file in files]
    return ExampleFile(
        name=", ".join(file.name for file in files),
        examples=tuple(
            replace(example, key=f"{name}:{example.key}") if clash else example
            for name, file in zip(names, files, strict=True)
            for example in file.examples
        ),
        skipped=tuple(skipped for file in files for skipped in file.skipped),
        notes=tuple(f"{file.name}: {note}" for file in files for note in file.notes),
        read_as=files[0].read_as,
    )
