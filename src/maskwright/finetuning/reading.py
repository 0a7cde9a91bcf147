"""How a model's training files were read (reading.json), and later files read the same way.

Of the user's own data reading.json holds what the training file showed. Of a benchmark it holds the benchmark's name
and what all of its files are read by: columns by all of their names, since a test file may be laid out otherwise than
the training file (CoLA's has a header, and no labels), which rows are left out by rule, and the training file's format.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.files import disk_problem, read_json, write_json
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.readers import (
    Kind,
    Paths,
    ReadAs,
    ReadOptions,
    read_as_from_json,
    read_examples,
    with_defaults,
)
from maskwright.finetuning.readers.columns import KNOWN_NAMES
from maskwright.finetuning.readers.files import format_of
from maskwright.finetuning.readers.options import as_names

READING_FILE = "reading.json"
_BENCHMARK = "benchmark"
"""Its entry that names the benchmark."""

_OF_A_BENCHMARK = ("format", "only", "dropped_labels")
"""Kept of a benchmark alone: of the user's own data each file has its own."""
_EACH_ITS_OWN = ("labels", "known_labels", "key", "encoding", "bad_rows")
"""What files of one benchmark need not have in common, or the task says."""
_OF_A_FORMAT = ("header", "quoting", "delimiter", "word_ending")
"""What holds in files of the same format: quotation marks of a TSV file say nothing about a CSV file."""
_ROLES = ("text", "text2", "label")
_OPEN = ReadOptions()


def save_read_as(folder: Path, read_as: ReadAs) -> None:
    """Save how the training file was read beside a model; if there is nothing to save, remove what is there.

    Raises:
        DeviceError: If it cannot be written.
    """
    path = folder / READING_FILE
    if read_as:
        write_json(path, dict(read_as))
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_problem(error, path) from error


def load_read_as(folder: str | Path) -> ReadAs:
    """Return how the training file was read; nothing where the folder does not say.

    Raises:
        DataError: If it cannot be read.
    """
    path = Path(folder).expanduser() / READING_FILE
    if not path.is_file():
        return {}
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", todo="Remove it to have columns guessed.") from error
    if not isinstance(data, dict) or _BENCHMARK not in data:
        return read_as_from_json(data, str(path))
    name = data.pop(_BENCHMARK)
    if name not in BENCHMARKS:
        raise DataError(f"{path} names a benchmark {name!r} that is not known", todo="Remove it to have it guessed.")
    return {_BENCHMARK: name, **read_as_from_json(data, str(path), _OF_A_BENCHMARK)}


def benchmark_read_as(name: str, kind: Kind, train: Paths, options: ReadOptions) -> ReadAs:
    """Return how all files of a benchmark are read, given its training files and how they were read."""
    kept = {
        field.name: value
        for field in fields(ReadOptions)
        if field.name not in _EACH_ITS_OWN and (value := getattr(options, field.name)) != getattr(_OPEN, field.name)
    }
    # The format that a name and content suggest: files that the model meets later are compared by it.
    return {_BENCHMARK: name, **kept, "format": _format_of(train, kind, replace(options, format=None))}


def read_for_model(paths: Paths, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    """Read examples as a model's training file was, if the file is laid out like that; else guess, with a note.

    Args:
        paths: A file, or several.
        kind: The kind of task.
        options: How to read them; what they leave open is as in training.
        trained: How the training file was read (`to_keep`), or all files of its benchmark (`benchmark_read_as`).

    Raises:
        DataError: If it cannot be read either way.
    """
    try:
        if _BENCHMARK in trained:
            return _as_benchmark(paths, kind, options, trained)
        return read_examples(paths, kind, with_defaults(options, trained))
    except DataError as error:
        like = "the training file was"
        if _BENCHMARK in trained:
            like = f"files of {BENCHMARKS[trained[_BENCHMARK]].title} are"
        elif with_defaults(options, trained) == options:
            raise
        file = read_examples(paths, kind, options)
        note = f"read with columns guessed anew, since it is not laid out as {like}: {error.problem}"
        return replace(file, notes=(note, *file.notes))


def _as_benchmark(paths: Paths, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    same = _format_of(paths, kind, options) == trained.get("format")
    left = {_BENCHMARK, "format", *(() if same else _OF_A_FORMAT)}
    kept = {name: value for name, value in trained.items() if name not in left}
    if not same:  # numbers of columns say nothing about a file in another format
        for role in _ROLES:
            kept[role] = tuple(name for name in as_names(kept.get(role, ())) if not name.isdecimal())
    file = read_examples(paths, kind, with_defaults(options, kept))
    numbered = str(file.read_as.get("text", "")).isdecimal() and isinstance(file.examples[0], TextExample)
    if numbered:
        first = file.examples[0].texts
        if file.names_among_rows or any(text.strip().casefold() in KNOWN_NAMES for text in first):
            raise DataError(f"{file.name} begins with names of columns: {', '.join(file.names_among_rows or first)}")
    if options.named_columns():
        return file
    note = f"read as files of {BENCHMARKS[trained[_BENCHMARK]].title} are"
    if columns := [repr(str(file.read_as[role])) for role in ("text", "text2") if file.read_as.get(role)]:
        where = "; the first line is an example" if numbered else ""
        note += f" (column{'s' * (len(columns) > 1)} {' and '.join(columns)}{where})"
    return replace(file, notes=(note, *file.notes))


def _format_of(paths: Paths, kind: Kind, options: ReadOptions) -> str:
    # Labels change nothing about what a file is; without them running text is told from columns.
    first = Path(paths if isinstance(paths, str | Path) else paths[0]).expanduser()
    return format_of(first, kind, replace(options, labels="ignored"))
