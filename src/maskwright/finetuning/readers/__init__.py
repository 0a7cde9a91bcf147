"""Labeled files and tables in memory as examples: `read_examples` reads any kind of task, from one or several."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from maskwright.core.errors import DataError
from maskwright.data.tables import Records, records_of
from maskwright.finetuning.examples import ExampleFile
from maskwright.finetuning.readers.options import Kind, ReadOptions, with_defaults
from maskwright.finetuning.readers.questions import read_choices, read_questions
from maskwright.finetuning.readers.tables import Source
from maskwright.finetuning.readers.tagged import read_tagged
from maskwright.finetuning.readers.texts import read_texts


class TableInMemory(Protocol):
    """A DataFrame of pandas or polars, a pyarrow Table, or a Hugging Face Dataset (`data.tables.records_of`)."""

    def __len__(self) -> int: ...


Data = str | Path | Sequence[str | Path] | Sequence[Mapping[str, Any]] | Sequence[Source] | TableInMemory
"""A file, several, or a table in memory: a `TableInMemory` or a list of dictionaries."""

_READERS: Mapping[str, Callable[[Source, ReadOptions], ExampleFile[Any]]] = {
    "tagging": read_tagged,
    "question_answering": read_questions,
    "multiple_choice": read_choices,
}
"""By kind of task; other kinds are texts."""


def sources_of(data: Data, name: str) -> tuple[Source, ...]:
    """Return data as files and tables in memory; DataError for anything else. `name` is the argument's name."""
    if isinstance(data, str | Path):
        return (Path(data).expanduser(),)
    if (records := records_of(data, name)) is not None:
        return (records,)
    several = isinstance(data, Iterable) and not isinstance(data, Mapping)
    each: list[Any] = list(data) if several else [data]  # type: ignore[call-overload]
    if wrong := [one for one in each if not isinstance(one, str | Path | Records)]:
        raise DataError(
            f"{name} is a {type(data).__name__}" + f" that holds a {type(wrong[0]).__name__}" * several,
            allowed="a file, a list of files, a DataFrame of pandas or polars, a pyarrow Table, a Hugging Face "
            "Dataset, or a list of dictionaries",
        )
    return tuple(one if isinstance(one, Records) else Path(one).expanduser() for one in each)


def read_examples(
    data: Data, kind: Kind, options: ReadOptions = ReadOptions(), optional: Collection[str] = ()
) -> ExampleFile[Any]:
    """Read the examples of a labeled file or a table in memory, or of several as one (C3 has two files for each split).

    Later files are read as the first one was. RACE is a folder. What the options leave open is guessed, and the notes
    list it; `optional` is as for `read_texts`. DataErrors name the file, the line, what was found and what to do.
    """
    files: list[ExampleFile[Any]] = []
    for source in sources_of(data, "the data"):
        as_first = with_defaults(options, files[0].read_as) if files else options
        read = _READERS.get(kind)
        files.append(read(source, as_first) if read else read_texts(source, kind, as_first, optional))
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
