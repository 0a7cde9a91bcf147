"""Labelled files of any kind, one or several, as examples."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, overload

from maskwright.core.errors import DataError, unknown_name
from maskwright.finetuning.examples import ChoiceExample, ExampleFile, QuestionExample, TaggedExample, TextExample
from maskwright.finetuning.readers.choices import read_choices
from maskwright.finetuning.readers.options import Kind, ReadOptions, TextKind
from maskwright.finetuning.readers.questions import read_questions
from maskwright.finetuning.readers.read_as import with_defaults
from maskwright.finetuning.readers.tagged import read_tagged
from maskwright.finetuning.readers.texts import read_texts

Paths = str | Path | Sequence[str | Path]


@overload
def read_examples(paths: Paths, kind: TextKind, options: ReadOptions = ...) -> ExampleFile[TextExample]: ...
@overload
def read_examples(paths: Paths, kind: Literal["tagging"], options: ReadOptions = ...) -> ExampleFile[TaggedExample]: ...
@overload
def read_examples(
    paths: Paths, kind: Literal["question_answering"], options: ReadOptions = ...
) -> ExampleFile[QuestionExample]: ...
@overload
def read_examples(
    paths: Paths, kind: Literal["multiple_choice"], options: ReadOptions = ...
) -> ExampleFile[ChoiceExample]: ...
@overload
def read_examples(paths: Paths, kind: Kind, options: ReadOptions = ...) -> ExampleFile[Any]: ...


def read_examples(paths: Paths, kind: Kind, options: ReadOptions = ReadOptions()) -> ExampleFile[Any]:
    """Read the examples of a labelled file, or of several as one.

    Args:
        paths: A file; a folder of RACE; or several, read one after the other (C3 has two files for each split), the
            later ones as the first.
        kind: The kind of task.
        options: How to read them. What they leave open is guessed and said in the notes.

    Raises:
        DataError: If a file cannot be read, with the file, the line, what was found and what to do.
    """
    files = [Path(path).expanduser() for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not files:
        raise DataError("no file was given", allowed="one file or more")
    read: list[ExampleFile[Any]] = []
    for file in files:
        read.append(_read(file, kind, with_defaults(options, read[0].read_as) if read else options))
    return _merged(read)


def _read(path: Path, kind: Kind, options: ReadOptions) -> ExampleFile[Any]:
    match kind:
        case "classification" | "regression" | "multi_label":
            return read_texts(path, kind, options)
        case "tagging":
            return read_tagged(path, options)
        case "question_answering":
            return read_questions(path, options)
        case "multiple_choice":
            return read_choices(path, options)
        case _:
            problem, allowed, todo = unknown_name("kind of task", kind, get_args(Kind))  # type: ignore[unreachable]
            raise DataError(problem, allowed=allowed, todo=todo)


def _merged(files: list[ExampleFile[Any]]) -> ExampleFile[Any]:
    if len(files) == 1:
        return files[0]
    keys = [example.key for file in files for example in file.examples]
    # Line numbers come again in every file.
    clash = len(set(keys)) < len(keys)
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
        names_among_rows=next((file.names_among_rows for file in files if file.names_among_rows), ()),
    )
