"""Files that a model meets are read as the data that it learnt from, where they are laid out so; else guessed."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.examples import ExampleFile, TextExample
from maskwright.finetuning.readers import Kind, Paths, ReadAs, ReadOptions, read_examples, with_defaults
from maskwright.finetuning.readers.column_names import KNOWN_NAMES
from maskwright.finetuning.readers.formats import format_of
from maskwright.finetuning.readers.options import as_names
from maskwright.finetuning.reading_json import BENCHMARK

_EACH_ITS_OWN = ("labels", "known_labels", "key", "encoding", "bad_rows")
"""What files of one benchmark need not have in common, or the task says."""
_OF_A_FORMAT = ("header", "quoting", "delimiter", "word_ending")
"""What holds in files of the same format: quotation marks of a TSV file tell nothing about a CSV file."""
_ROLES = ("text", "text2", "label")
_OPEN = ReadOptions()


def benchmark_read_as(name: str, kind: Kind, train: Paths, options: ReadOptions) -> ReadAs:
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
    return {BENCHMARK: name, **kept, "format": _format_of(train, kind, replace(options, format=None))}


def read_for_model(paths: Paths, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    """Read examples as a model's training file was, where the file is laid out so; else guess, and say which.

    Args:
        paths: A file, or several.
        kind: The kind of task.
        options: How to read them; what they leave open is as in training.
        trained: How the training file was read (`to_keep`), or all files of its benchmark (`benchmark_read_as`).

    Raises:
        DataError: If it cannot be read either way.
    """
    try:
        if BENCHMARK in trained:
            return _as_benchmark(paths, kind, options, trained)
        return read_examples(paths, kind, with_defaults(options, trained))
    except DataError as error:
        like = "the training file was"
        if BENCHMARK in trained:
            like = f"files of {BENCHMARKS[trained[BENCHMARK]].title} are"
        elif with_defaults(options, trained) == options:
            raise
        file = read_examples(paths, kind, options)
        note = f"read with columns guessed anew, since it is not laid out as {like}: {error.problem}"
        return replace(file, notes=(note, *file.notes))


def _as_benchmark(paths: Paths, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    same = _format_of(paths, kind, options) == trained.get("format")
    left = {BENCHMARK, "format", *(() if same else _OF_A_FORMAT)}
    kept = {name: value for name, value in trained.items() if name not in left}
    file = read_examples(paths, kind, with_defaults(options, kept if same else _without_numbers(kept)))
    _refuse_names(file)
    title = BENCHMARKS[trained[BENCHMARK]].title
    said = () if options.named_columns() else (f"read as files of {title} are{_columns(file)}",)
    return replace(file, notes=(*said, *file.notes))


def _format_of(paths: Paths, kind: Kind, options: ReadOptions) -> str:
    # Labels change nothing about what a file is; without them running text is told from columns.
    first = Path(paths if isinstance(paths, str | Path) else paths[0]).expanduser()
    return format_of(first, kind, replace(options, labels="ignored"))


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
    if file.names_among_rows or any(text.strip().casefold() in KNOWN_NAMES for text in first.texts):
        names = ", ".join(file.names_among_rows or first.texts)
        raise DataError(f"{file.name} begins with names of columns: {names}")


def _columns(file: ExampleFile[Any]) -> str:
    named = [str(file.read_as[role]) for role in ("text", "text2") if file.read_as.get(role)]
    if not named:
        return ""
    plural = "s" * (len(named) > 1)
    headless = isinstance(file.examples[0], TextExample) and all(name.isdecimal() for name in named)
    where = "; the first line is an example" if headless else ""
    return f" (column{plural} {' and '.join(map(repr, named))}{where})"
