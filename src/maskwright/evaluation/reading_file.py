"""How a model's training file was read, kept in the model's folder (reading.json), and later files read by it.

Of the user's own data it holds what the training file showed. Of a benchmark it holds the benchmark's name and what
all of its files are read by: columns by all of their names, since a test file may be laid out otherwise than the
training file (CoLA's has a header, and no labels), which rows are left out by rule, and the training file's format.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from maskwright.core.errors import DataError
from maskwright.core.files import read_json, write_json
from maskwright.evaluation.benchmarks import BENCHMARKS
from maskwright.evaluation.examples import ExampleFile, TextExample
from maskwright.evaluation.readers import (
    Kind,
    Paths,
    ReadAs,
    ReadOptions,
    alike,
    read_as_before,
    read_as_from_json,
    read_examples,
    read_or_guess,
)
from maskwright.evaluation.readers.column_names import KNOWN_NAMES
from maskwright.evaluation.readers.formats import format_of
from maskwright.evaluation.readers.options import as_names

READING_FILE = "reading.json"

_BENCHMARK = "benchmark"
_OF_ALL_FILES = ("format", "only", "dropped_labels")
"""Kept of a benchmark alone: of the user's own data each file has its own."""
_EACH_ITS_OWN = ("labels", "known_labels", "key", "encoding", "bad_rows")
"""What files of one benchmark need not have in common, or the task says."""
_OF_A_FORMAT = ("header", "quoting", "delimiter", "word_ending")
"""What holds in files of the same format: quotation marks of a TSV file tell nothing about a CSV file."""
_ROLES = ("text", "text2", "label")
_OPEN = ReadOptions()


def read_as_of_benchmark(name: str, kind: Kind, train: Paths, options: ReadOptions) -> ReadAs:
    """Return how all files of a benchmark are read.

    Args:
        name: The benchmark.
        kind: The kind of task.
        train: The training file, or several.
        options: How they were read.

    Raises:
        DataError: If the training file is none.
    """
    kept = {
        field.name: value
        for field in fields(ReadOptions)
        if field.name not in _EACH_ITS_OWN and (value := getattr(options, field.name)) != getattr(_OPEN, field.name)
    }
    # The format that a name and content suggest: files that the model meets later are compared by it.
    return {_BENCHMARK: name, **kept, "format": _format_of(train, kind, replace(options, format=None))}


def write_read_as(folder: Path, read_as: ReadAs) -> None:
    """Keep it; a folder without it has none.

    Raises:
        DeviceError: If it cannot be written.
    """
    if read_as:
        write_json(folder / READING_FILE, dict(read_as))


def read_as_of(model: str | Path) -> ReadAs:
    """Return how the training file was read; nothing where the folder does not say, or is on a hub.

    Raises:
        DataError: If it cannot be read.
    """
    path = Path(model).expanduser() / READING_FILE
    if not path.is_file():
        return {}
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", todo="Remove it to have columns guessed.") from error
    if not isinstance(data, dict) or _BENCHMARK not in data:
        return read_as_from_json(data, str(path))
    return _of_benchmark_from_json(data, str(path))


def read_like_training(paths: Paths, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    """Read examples as a model's training file was, where the file is laid out so; else guess, and say which.

    Args:
        paths: A file, or several.
        kind: The kind of task.
        options: How to read them.
        trained: How the training file was read (`read_as_of`).

    Raises:
        DataError: If it cannot be read either way.
    """
    if _BENCHMARK not in trained:
        return read_as_before(paths, kind, options, trained)
    title = BENCHMARKS[trained[_BENCHMARK]].title
    same = _format_of(paths, kind, options) == trained.get("format")
    left = {_BENCHMARK, "format", *(() if same else _OF_A_FORMAT)}
    kept = {name: value for name, value in trained.items() if name not in left}

    def read() -> ExampleFile[Any]:
        file = read_examples(paths, kind, alike(options, kept if same else _without_numbers(kept)))
        _refuse_names(file)
        said = () if options.named_columns() else (f"read as files of {title} are{_columns(file)}",)
        return replace(file, notes=(*said, *file.notes))

    return read_or_guess(read, paths, kind, options, f"files of {title} are")


def _format_of(paths: Paths, kind: Kind, options: ReadOptions) -> str:
    # Labels change nothing about what a file is; without them running text is told from columns.
    first = Path(paths if isinstance(paths, str | Path) else paths[0]).expanduser()
    return format_of(first, kind, replace(options, labels="ignored"))


def _of_benchmark_from_json(data: Mapping[str, Any], where: str) -> ReadAs:
    name = data[_BENCHMARK]
    if name not in BENCHMARKS:
        raise DataError(f"{where} names a benchmark {name!r} that is not known", todo="Remove it to have it guessed.")
    own = {field: data[field] for field in _OF_ALL_FILES if field in data}
    others = {field: value for field, value in data.items() if field not in (*_OF_ALL_FILES, _BENCHMARK)}
    try:
        options = TypeAdapter(ReadOptions).validate_python({**asdict(_OPEN), **own})
    except ValidationError as error:
        raise DataError(f"{where}: {error.errors()[0]['msg']}", todo="Remove the file to have it guessed.") from None
    return {_BENCHMARK: name, **read_as_from_json(others, where), **{field: getattr(options, field) for field in own}}


def _without_numbers(read_as: ReadAs) -> dict[str, Any]:
    """Leave out numbers of columns, which say nothing of a file in another format."""
    others = {name: value for name, value in read_as.items() if name not in _ROLES}
    roles = {role: as_names(read_as[role]) for role in _ROLES if read_as.get(role)}
    named = {role: tuple(name for name in names if not name.isdecimal()) for role, names in roles.items()}
    return {**others, **{role: names for role, names in named.items() if names}}


def _refuse_names(file: ExampleFile[Any]) -> None:
    """Refuse a file whose line of names was read as an example, where columns were found by number."""
    first = file.examples[0]
    if not str(file.read_as.get("text", "")).isdecimal() or not isinstance(first, TextExample):
        return
    if any(text.strip().casefold() in KNOWN_NAMES for text in first.texts):
        raise DataError(f"{file.name} begins with names of columns: {', '.join(first.texts)}")


def _columns(file: ExampleFile[Any]) -> str:
    named = [str(file.read_as[role]) for role in ("text", "text2") if file.read_as.get(role)]
    if not named:
        return ""
    plural = "s" * (len(named) > 1)
    headless = isinstance(file.examples[0], TextExample) and all(name.isdecimal() for name in named)
    where = "; the first line is an example" if headless else ""
    return f" (column{plural} {' and '.join(map(repr, named))}{where})"
