"""Tables, rows of named columns: CSV, TSV, JSON, JSON Lines and Parquet files, and data in memory.

This is the reader for corpora, labeled files and texts for inference. Users name columns; otherwise a column with a
usual name is used, which the caller prints.
"""

import csv
import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from maskwright.core.errors import DataError, first_line, json_problem, suggestion
from maskwright.core.extras import imported
from maskwright.core.storage.files import parse_json
from maskwright.core.text.amounts import listed, pluralize
from maskwright.data.files import MAX_LINE_BYTES, BadLine, OnBadLine, decoded_lines, decompressed, undecodable

TableFormat = Literal["csv", "tsv", "jsonl", "parquet"]
TABLE_SUFFIXES: Mapping[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
TEXT_COLUMNS = ("text", "sentence", "content", "review", "comment")
"""Usual names of the column of texts (`usual_text_column`)."""

_ROWS_SAMPLED = 20
_ROWS_AT_ONCE = 512
_FEWEST_SUSPECT_LINES = 100
_MOST_REREAD = 1_000_000
"""Lines read again after rows that are not CSV, from which on each line is a row: otherwise time is quadratic."""
"""Lines of one field from which a missing quotation mark is suspected."""

Cells = dict[str, object]
OnColumn = Callable[[str], None]


class Row(NamedTuple):
    """A row: its location for messages, its key (the number of its line or record), its values by column."""

    location: str
    key: str
    cells: Cells


# Columns.


def usual_text_column(columns: Sequence[str]) -> str | None:
    """Return the first column of a usual name of texts; exact names come before other case."""
    usual = [column for name in TEXT_COLUMNS for column in columns if column.casefold() == name]
    return next((column for column in usual if column in TEXT_COLUMNS), next(iter(usual), None))


def refuse_repeated(columns: Sequence[str], used: Iterable[str], name: str) -> None:
    """Raise DataError if a column that is used shares its name with another."""
    if repeated := next((column for column in used if columns.count(column) > 1), None):
        raise DataError(f"{name} has several columns {repeated!r}", hint="Rename them.")


def text_column(columns: Sequence[str], textual: Sequence[str], wanted: str | None, name: str, hint: str) -> str:
    """Return the column of texts: the one wanted, else of a usual name, else the only one of `textual`.

    `hint` is how the user names the column, e.g. "--column {}". Raises DataError if there is none, or several of this
    name.
    """
    if wanted is not None and wanted not in columns:
        problem, hint = f"{name} has no column {wanted!r}", suggestion(wanted, columns)
        raise DataError(problem, allowed=listed(columns), hint=hint)
    column = usual_text_column(textual) if wanted is None else wanted
    if column is None and len(textual) == 1:
        column = textual[0]
    if column is not None:
        refuse_repeated(columns, [column], name)
        return column
    problem = f"several columns could contain the text ({listed(textual)})"
    raise DataError(
        f"{name}: {problem if textual else 'no column contains text'}; it has {listed(columns)}",
        allowed=f"a single column of texts, or one named {', '.join(TEXT_COLUMNS)}",
        hint=f"Name the column, e.g. `{hint.format((textual or columns or ['body'])[0])}`",
    )


def _is_text(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and not is_number(value)
    return isinstance(value, list) and bool(value) and all(isinstance(part, str) for part in value)


def is_number(value: object) -> bool:
    """Return whether a cell is a number, with a decimal point or comma."""
    try:
        float(str(value).replace(",", ".", 1))
    except ValueError:
        return False
    return True


def text_of(value: object) -> str:
    """Return a cell as a text: a list of texts as paragraphs, a null as an empty text; ValueError for anything else."""
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(part, str) or part is None for part in value):
        return "\n\n".join(part or "" for part in value)
    if not isinstance(value, str):
        raise ValueError(f"not a text but {type(value).__name__}")
    return value


def column_texts(
    columns: Sequence[str],
    rows: Iterable[Row],
    wanted: str | None,
    name: str,
    hint: str,
    on_bad_line: OnBadLine,
    on_column: OnColumn = lambda name: None,
) -> Iterator[str]:
    """Yield the texts of one column (`text_column`); `on_column` receives its name."""
    rows = iter(rows)
    first = list(islice(rows, _ROWS_SAMPLED))
    textual = [column for column in columns if not first or any(_is_text(row.cells.get(column)) for row in first)]
    column = text_column(columns, textual, wanted, name, hint)
    on_column(column)
    for row in chain(first, rows):
        try:
            if (value := row.cells.get(column)) is None:  # Of a table in memory; files have empty texts.
                raise ValueError("None")
            yield text_of(value)
        except ValueError as error:
            on_bad_line(BadLine(row.location, f"the column {column!r} is {error}"))


def file_texts(
    file: BinaryIO,
    path: Path,
    format: TableFormat,
    column: str | None,
    hint: str,
    on_bad_line: OnBadLine,
    on_column: OnColumn = lambda name: None,
) -> Iterator[str]:
    """Yield the texts of one column of an open CSV, TSV or Parquet file, a few rows at a time."""
    if format == "parquet":
        return _parquet_texts(file, path, column, hint, on_column)
    lines = decoded_lines(decompressed(file, path), str(path), on_bad_line)
    columns, rows = delimited_rows(lines, str(path), on_bad_line)
    return column_texts(columns, rows, column, str(path), hint, on_bad_line, on_column)


# CSV and TSV.


def guess_delimiter(line: str) -> str:
    """Return the delimiter of a table by its first line: a tab if there is one, else the most frequent of `,;|`."""
    return "\t" if "\t" in line else max(",;|", key=line.count)


def delimited_rows(
    lines: Iterable[str],
    name: str,
    on_bad_line: OnBadLine,
    *,
    delimiter: str | None = None,
    quoted: bool = True,
    strict: bool = False,
    has_header: Callable[[Sequence[str]], bool] = lambda first: True,
) -> tuple[tuple[str, ...], Iterator[Row]]:
    """Return the columns of a delimited file and its rows, which are read as they are used.

    Columns are "1", "2" and so on where the first line is not the header. Rows of another width are reported.

    Args:
        lines: With line ends, if `quoted`.
        delimiter: A space separates only the first column from the rest of the line. None: `guess_delimiter`.
        quoted: Whether double quotes may enclose fields. Rows of several lines that are not CSV are reported.
        strict: Whether rows of one line that are not CSV are reported too; otherwise they are read as far as possible.
        has_header: Whether the fields of the first line are the names of the columns.
    """
    lines, head = iter(lines), list[str]()
    for line in lines:
        head.append(line)
        if line.strip():
            break
    delimiter = delimiter or guess_delimiter(head[-1] if head else "")
    read = partial(_quoted_fields, strict=strict) if quoted else _plain_fields
    fields = read(chain(head, lines), name, delimiter, on_bad_line)
    start = next((row for row in fields if any(map(str.strip, row[2]))), None)
    if start is None:
        raise DataError(f"{name} has no header line", hint="The first line must name the columns.")
    names = [field.strip() for field in start[2]]
    if has_header(names):
        columns = tuple(field or str(number) for number, field in enumerate(names, 1))
        return columns, _rows(fields, columns, "the header has", name, on_bad_line)
    rows = [start, *fields]
    width = Counter(len(values) for *_, values in rows).most_common(1)[0][0]
    columns = tuple(str(number) for number in range(1, width + 1))
    return columns, _rows(iter(rows), columns, "most rows have", name, on_bad_line)


_Fields = Iterator[tuple[int, int, list[str]]]
"""The first and last line of each row, and its fields."""


def _plain_fields(lines: Iterable[str], name: str, delimiter: str, on_bad_line: OnBadLine) -> _Fields:
    for number, line in enumerate(lines, 1):
        if line := line.rstrip("\r\n"):
            yield number, number, line.split(delimiter, 1 if delimiter == " " else -1)


def _quoted_fields(lines: Iterable[str], name: str, delimiter: str, on_bad_line: OnBadLine, *, strict: bool) -> _Fields:
    rest, again, read = iter(lines), deque[str](), list[str]()
    parse = partial(csv.reader, delimiter=delimiter)

    def next_lines() -> Iterator[str]:
        while (line := again.popleft() if again else next(rest, None)) is not None:
            read.append(line)
            yield line

    with long_fields():
        reader: Iterator[list[str]] = parse(next_lines(), strict=True)
        first, reread = 1, 0
        while True:
            read.clear()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields = []
                if not strict and len(read) == 1 and "end of data" not in str(error):
                    with suppress(csv.Error):
                        fields = next(parse(read))
                if not fields:
                    below = f", {pluralize(len(read) - 1, 'line')} below" if len(read) > 1 else ""
                    hint = 'Close quoted fields, and write quotes within them as ""' if '"' in read[0] else ""
                    on_bad_line(BadLine(f"{name}, line {first}", f"not CSV ({error}{below})", hint))
                # If the quotation mark is a mistake, the lines below are rows.
                again.extendleft(reversed(read[1:]))
                reread += len(read) - 1
                del read[1:]
                if reread <= _MOST_REREAD:
                    reader = parse(next_lines(), strict=True)
                else:
                    reader = chain.from_iterable(parse([line], strict=True) for line in next_lines())
            if fields:
                yield first, first + len(read) - 1, fields
            first += len(read)


def _rows(fields: _Fields, columns: tuple[str, ...], expected: str, name: str, on_bad_line: OnBadLine) -> Iterator[Row]:
    for first, last, values in fields:
        location = f"{name}, line {first}"
        if not any(values[len(columns) :]):
            values = values[: len(columns)]
        if len(values) == len(columns):
            yield Row(location, str(first), dict(zip(columns, values, strict=True)))
        elif any(map(str.strip, values)):
            problem = f"{pluralize(len(values), 'column')} where {expected} {len(columns)}"
            if last > first + _FEWEST_SUSPECT_LINES:
                problem += f", after a field of {last - first} lines (an unbalanced quotation mark?)"
            on_bad_line(BadLine(location, problem))


def malformed_rows(text: str, name: str, delimiter: str) -> list[BadLine]:
    """Return the first lines of rows that are not CSV."""
    bad: list[BadLine] = []
    deque(_quoted_fields(io.StringIO(text, newline=""), name, delimiter, bad.append, strict=True), maxlen=0)
    return bad


@contextmanager
def long_fields() -> Iterator[None]:
    """Allow the csv module long fields in the block; its limit is global."""
    # A longer field is not a text but the rest of a file after an unbalanced quotation mark.
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# JSON and JSON Lines.


class JsonValue(NamedTuple):
    """A value: its location for messages, its key (the number of its line or record), and the value."""

    location: str
    key: str
    value: Any


def json_values(
    lines: Iterable[bytes | str], name: str, on_bad_line: OnBadLine, first_line: int = 1
) -> Iterator[JsonValue]:
    """Yield the value of each line that is not blank; report lines that are not JSON in UTF-8."""
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            value = parse_json(line if isinstance(line, str) else line.decode("utf-8"))
            yield JsonValue(f"{name}, line {number}", str(number), value)
        except UnicodeDecodeError as error:
            assert isinstance(line, bytes)
            on_bad_line(undecodable(line, error, name, number))
        except ValueError as error:
            text = line[:60] if isinstance(line, str) else line[:60].decode("utf-8", errors="replace")
            problem = f"not JSON ({json_problem(error)}); it begins {text.strip()!r}"
            on_bad_line(BadLine(f"{name}, line {number}", problem))


def json_records(text: str, name: str, on_bad_line: OnBadLine) -> Iterator[JsonValue]:
    """Yield the records of a file `name`: JSON Lines of objects or of strings, a list, or one value.

    Raises DataError if the text is none of these.
    """
    try:
        data = parse_json(text)
    except ValueError as error:
        lines = text.split("\n")  # Other line separators of Unicode are text in JSON.
        starts = [line.lstrip()[:1] for line in lines if line.strip()]
        if starts[:2] in (["{", "{"], ['"', '"']):
            yield from json_values(lines, name, on_bad_line)
            return
        raise DataError(
            f"{name}, line {getattr(error, 'lineno', 1)}: not JSON ({json_problem(error)})",
            hint="Check that the file is whole. JSON Lines have one object per line.",
        ) from error
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    for number, record in enumerate(data if isinstance(data, list) else [data], 1):
        yield JsonValue(f"{name}, record {number}", str(number), record)


def json_text(value: object, column: str) -> str:
    """Return the text of a JSON value: a string, or a field of an object (`text_of`); ValueError without one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object but {type(value).__name__}")
    if column not in value:
        raise ValueError(f"no field {column!r}; found {', '.join(map(repr, list(value)[:12])) or 'no fields'}")
    try:
        return text_of(value[column])
    except ValueError as error:
        raise ValueError(f"the field {column!r} is {error}") from None


def json_texts(values: Iterable[JsonValue], column: str, on_bad_line: OnBadLine) -> Iterator[str]:
    """Yield the text of each value (`json_text`)."""
    for location, _, value in values:
        try:
            yield json_text(value, column)
        except ValueError as error:
            on_bad_line(BadLine(location, str(error)))


def json_column(values: Iterable[JsonValue], name: str, hint: str) -> str | None:
    """Return the field of the texts by the first JSON object (`text_column`); None if there is none."""
    for *_, value in values:
        if isinstance(value, dict):
            textual = [field for field in value if isinstance(value[field], str) or _is_text(value[field])]
            return text_column(list(value), textual, None, name, hint)
    return None


# Parquet.


@contextmanager
def open_parquet(file: BinaryIO, path: Path) -> Iterator[Any]:
    """Open a Parquet file as pyarrow's `ParquetFile`; turn errors of reading it into a DataError."""
    parquet = imported("pyarrow.parquet", f"reading {path}", "parquet", package="pyarrow")
    import pyarrow

    try:
        yield parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a readable Parquet file: {first_line(error)}", hint="Write or download it again."
        ) from error


def _parquet_texts(file: BinaryIO, path: Path, column: str | None, hint: str, on_column: OnColumn) -> Iterator[str]:
    with open_parquet(file, path) as table:
        schema = table.schema_arrow
        textual = [field.name for field in schema if _holds_text(field.type)]
        name = text_column(schema.names, textual, column, str(path), hint)
        if name not in textual:
            raise DataError(
                f"{path}: the column {name!r} has {schema.field(name).type}, not text",
                allowed=", ".join(textual) or "columns of strings",
            )
        on_column(name)
        for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[name]):
            yield from map(text_of, batch.column(0).to_pylist())


def _holds_text(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


# Data in memory.


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """The rows of a table in memory, called `name` in messages. Missing values are None."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]

    def __str__(self) -> str:
        return self.name

    def numbered(self) -> Iterator[Row]:
        for number, cells in enumerate(self.rows, 1):
            yield Row(f"{self.name}, record {number}", str(number), cells)


def records_of(data: object, name: str) -> Records | None:
    """Return a table in memory as records; None if `data` is something else.

    A table is a DataFrame of pandas or polars, a pyarrow Table, a Hugging Face Dataset (its class labels become their
    names), or a list of dictionaries. Raises DataError for several splits in one object, and for columns that share a
    name.
    """
    if isinstance(data, Records):
        return data
    table: Any = data
    name = f"{name} ({type(data).__name__})"
    if isinstance(data, Mapping) and data and all(hasattr(split, "column_names") for split in data.values()):
        first = next(iter(data))
        raise DataError(f"{name} holds the splits {', '.join(map(str, data))}", hint=f"Pass one of them, [{first!r}].")
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        rows = data
    elif hasattr(data, "features") and hasattr(data, "column_names"):
        rows = [_with_class_names(row, table.features) for row in table]
    elif hasattr(data, "to_pylist") and hasattr(data, "column_names"):
        refuse_repeated(table.column_names, table.column_names, name)
        rows = table.to_pylist()
    elif hasattr(data, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns") and hasattr(data, "notna"):
        refuse_repeated(names := list(map(str, table.columns)), names, name)
        rows = table.astype(object).where(table.notna(), None).to_dict(orient="records")
    else:
        return None
    columns = tuple(dict.fromkeys(str(column) for row in rows for column in row))
    plain = [{str(column): _plain(value) for column, value in row.items()} for row in rows]
    return Records(name, columns, tuple({column: row.get(column) for column in columns} for row in plain))


def _plain(value: Any) -> object:
    """Return NumPy's arrays and scalars as Python's, NaN as None."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and value != value else value


def _with_class_names(row: Mapping[str, Any], features: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a row of a Hugging Face Dataset with the names of its class labels; -1 is a missing label."""

    def named(value: Any, feature: Any) -> Any:
        if isinstance(value, list):
            return [named(each, getattr(feature, "feature", None)) for each in value]
        if isinstance(value, int) and hasattr(feature, "int2str"):
            return feature.int2str(value) if value >= 0 else None
        return value

    return {column: named(value, (features or {}).get(column)) for column, value in row.items()}
