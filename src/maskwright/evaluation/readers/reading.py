"""Labelled files of any kind, one or several, as examples."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, overload

from maskwright.core.errors import DataError, unknown_name
from maskwright.evaluation.examples import ChoiceExample, ExampleFile, QuestionExample, TaggedExample, TextExample
from maskwright.evaluation.readers.choices import read_choices
from maskwright.evaluation.readers.options import Kind, ReadOptions, TextKind
from maskwright.evaluation.readers.questions import read_questions
from maskwright.evaluation.readers.read_as import ReadAs, alike
from maskwright.evaluation.readers.tagged import read_tagged
from maskwright.evaluation.readers.texts import read_texts

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
        read.append(_read(file, kind, alike(options, read[0].read_as) if read else options))
    return _merged(read)


def read_as_before(paths: Paths, kind: Kind, options: ReadOptions, before: ReadAs) -> ExampleFile[Any]:
    """Read examples as those were that a model was made of, where the file is laid out so; else guess, and say it.

    Args:
        paths: A file, or several.
        kind: The kind of task.
        options: How to read them.
        before: How the training file was read (`to_keep`).

    Raises:
        DataError: If it cannot be read either way.
    """
    if (as_before := alike(options, before)) == options:
        return read_examples(paths, kind, options)
    return read_or_guess(lambda: read_examples(paths, kind, as_before), paths, kind, options, "the training file was")


def read_or_guess(
    read: Callable[[], ExampleFile[Any]], paths: Paths, kind: Kind, options: ReadOptions, like: str
) -> ExampleFile[Any]:
    """Return what is read, or, where that is refused, the same files read with columns guessed, and say so.

    Args:
        read: Reads them in the way that is tried first.
        paths: A file, or several.
        kind: The kind of task.
        options: How to read them then.
        like: What they are not laid out as, for the note: "the training file was".

    Raises:
        DataError: If they cannot be read either way.
    """
    try:
        return read()
    except DataError as error:
        file = read_examples(paths, kind, options)
        note = f"read with columns guessed anew, since it is not laid out as {like}: {error.problem}"
        return replace(file, notes=(note, *file.notes))


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
    )
