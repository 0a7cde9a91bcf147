"""Texts of CSV and Parquet files and of Hugging Face datasets (streamed), and the choice of the text column."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, BinaryIO

from maskwright.core.errors import DataError, nearest
from maskwright.core.files import parse_json
from maskwright.data.files import MAX_LINE_BYTES, BadLine, OnBadLine, decoded_lines
from maskwright.data.libraries import imported
from maskwright.data.sources.arguments import HubDataset

_ROWS_LOOKED_AT = 20
_ROWS_AT_ONCE = 512

OnColumn = Callable[[str], None]


def choose_column(columns: Sequence[str], textual: Sequence[str], wanted: str | None, file: str) -> str:
    """Return the text column: the user's (`file.csv#body`), `text`, `content`, or the only textual one."""
    if wanted is not None:
        if wanted in columns:
            return wanted
        guess = nearest(wanted, columns)
        todo = f"Did you mean {guess!r}?" if guess else ""
        raise DataError(f"{file} has no column {wanted!r}", allowed=", ".join(columns), todo=todo)
    usual = [name for name in ("text", "content") if name in textual]
    if usual or len(textual) == 1:
        return (usual or textual)[0]
    found = f"several columns could contain the text ({', '.join(textual)})" if textual else "no column contains text"
    raise DataError(
        f"{file}: {found}; it has {', '.join(columns)}",
        allowed="a column named 'text' or 'content', or a single column of texts",
        todo=f"Name the column, e.g. `{file}#{(textual or columns or ['body'])[0]}`",
    )


def json_column(lines: bytes, file: str) -> str | None:
    """Return the text field of JSON lines, from the first record; None if there is no JSON object."""
    for line in lines.split(b"\n"):
        try:
            record = parse_json(line)
        except ValueError:
            continue  # reported where the line is read
        if isinstance(record, dict):
            return choose_column(list(record), [name for name, value in record.items() if _is_text(value)], None, file)
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    )


def csv_documents(
    stream: BinaryIO, path: Path, column: str | None, on_bad_line: OnBadLine, on_column: OnColumn = lambda name: None
) -> Iterator[str]:
    """Read the text column of a CSV file with a header; `on_column` receives its name.

    The delimiter is the header's most frequent of comma, semicolon and tab.
    """
    lines = decoded_lines(stream, str(path), on_bad_line)
    header = next(lines, "")
    delimiter = max(",;\t", key=header.count)
    with long_fields():
        rows = csv.reader(chain([header], lines), delimiter=delimiter)
        todo = "The first line must name the columns."
        try:
            columns = next(rows, [])
        except csv.Error as error:
            raise DataError(f"{path}, line 1: not CSV ({error})", todo=todo) from error
        if not any(columns):
            raise DataError(f"{path} has no header line", todo=todo)
        good = _whole_rows(rows, len(columns), path, on_bad_line)
        first = list(islice(good, _ROWS_LOOKED_AT))
        textual = [name for i, name in enumerate(columns) if not first or any(not _is_number(row[i]) for row in first)]
        name = choose_column(columns, textual, column, str(path))
        on_column(name)
        place = columns.index(name)
        for row in chain(first, good):
            yield row[place]


def _whole_rows(rows: Any, width: int, path: Path, on_bad_line: OnBadLine) -> Iterator[list[str]]:
    while True:
        line = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            on_bad_line(BadLine(f"{path}, line {line}", f"not CSV ({error})"))
            continue
        if len(row) == width:
            yield row
        elif row:
            problem = f"{len(row)} columns where the header has {width}"
            if rows.line_num > line + 100:
                problem += f", after a field of {rows.line_num - line} lines (an unbalanced quotation mark?)"
            on_bad_line(BadLine(f"{path}, line {line}", problem))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return not field.strip()
    return True


@contextmanager
def long_fields() -> Iterator[None]:
    """Allow the csv module long fields in the block; its limit is global."""
    # A longer field is not a text but the rest of a file after an unbalanced quotation mark.
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def parquet_documents(
    file: IO[bytes], path: Path, column: str | None, on_column: OnColumn = lambda name: None
) -> Iterator[str]:
    """Read the text column of a Parquet file, some rows at a time; a null is an empty document."""
    parquet = imported("pyarrow.parquet", f"reading {path}", "parquet", package="pyarrow")
    with reading_parquet(path):
        table = parquet.ParquetFile(file)
        schema = table.schema_arrow
        textual = [field.name for field in schema if _holds_text(field.type)]
        name = choose_column(schema.names, textual, column, str(path))
        if name not in textual:
            raise DataError(
                f"{path}: the column {name!r} has {schema.field(name).type}, not text",
                allowed=", ".join(textual) or "columns of strings",
            )
        on_column(name)
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[name]):
            for value in batch.column(0).to_pylist():
                yield value if isinstance(value, str) else "\n\n".join(part or "" for part in value or ())


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Turn the errors of pyarrow for a damaged file into a DataError."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}", todo="Write or download it again."
        ) from error


def _holds_text(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def hub_documents(dataset: HubDataset, column: str | None) -> Iterator[str]:
    """Stream the text column of a dataset's split; DataError if that cannot be done."""
    purpose = f"{dataset.name!r} is no file or folder here, and reading it from the Hugging Face hub"
    datasets = imported("datasets", purpose, "hub", otherwise="correct the path")
    rows, place = 0, ""
    try:
        for row in datasets.load_dataset(dataset.name, dataset.config, split=dataset.split, streaming=True):
            if not rows:
                textual = [name for name, value in row.items() if isinstance(value, str)]
                place = choose_column(list(row), textual, column, dataset.name)
            rows += 1
            yield row[place] or ""
    except DataError:
        raise
    except Exception as error:
        # Network, names, permissions and damaged files raise many classes of several packages.
        where = f"after {rows:,} rows" if rows else "at its start"
        raise DataError(
            f"cannot read the dataset {dataset.name!r} ({dataset.split}) from the Hugging Face hub {where}: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            todo="Check the name, the split (`owner/name[split]` or `owner/name[configuration, split]`) and the "
            "connection; without one, give local files.",
        ) from error
