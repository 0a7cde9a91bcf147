"""reading.json in a model's folder: how its training file was read, for files that the model meets later.

Of the user's own data it holds what the training file showed. Of a benchmark it holds the benchmark's name and what
all of its files are read by: columns by all of their names, since a test file may be laid out otherwise than the
training file (CoLA's has a header, and no labels), which rows are left out by rule, and the training file's format.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from maskwright.core.errors import DataError
from maskwright.core.files import disk_problem, read_json, write_json
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.readers import ReadAs, ReadOptions, read_as_from_json

READING_FILE = "reading.json"
BENCHMARK = "benchmark"
"""Its entry that names the benchmark."""

_OF_ALL_FILES = ("format", "only", "dropped_labels")
"""Kept of a benchmark alone: of the user's own data each file has its own."""
_OPEN = ReadOptions()


def save_read_as(folder: Path, read_as: ReadAs) -> None:
    """Keep it beside a model; nothing to keep is no file, and another model's is removed.

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
    if not isinstance(data, dict) or BENCHMARK not in data:
        return read_as_from_json(data, str(path))
    return _of_benchmark(data, str(path))


def _of_benchmark(data: Mapping[str, Any], where: str) -> ReadAs:
    name = data[BENCHMARK]
    if name not in BENCHMARKS:
        raise DataError(f"{where} names a benchmark {name!r} that is not known", todo="Remove it to have it guessed.")
    own = {field: data[field] for field in _OF_ALL_FILES if field in data}
    others = {field: value for field, value in data.items() if field not in (*_OF_ALL_FILES, BENCHMARK)}
    try:
        options = TypeAdapter(ReadOptions).validate_python({**asdict(_OPEN), **own})
    except ValidationError as error:
        raise DataError(f"{where}: {error.errors()[0]['msg']}", todo="Remove the file to have it guessed.") from None
    return {BENCHMARK: name, **read_as_from_json(others, where), **{field: getattr(options, field) for field in own}}
