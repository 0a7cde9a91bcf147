"""Files of rows as tables: CSV and TSV (with or without header, quoted or not), JSON, Parquet, one text a line."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.data.sources.tables import long_fields
from maskwright.finetuning.readers.columns import KNOWN_NAMES
from maskwright.finetuning.readers.files import (
    LoadedText,
    Skips,
    is_json_lines,
    lines_of,
    load_bytes,
    load_text,
    parse_json,
)
from maskwright.finetuning.readers.options import Format, ReadOptions

_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LINES_LOOKED_AT = 200
_LONGEST_NAME = 40
# A quoted field of more lines than this is an unbalanced quotation mark.
_MANY_LINES = 100

Row = tuple[int, Sequence[object]]
"""Line or record number, from 1, and as many values as the table has columns: text, or what JSON and Parquet hold."""
Line = tuple[int, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file.

    Attributes:
        name: The file, for messages.
        columns: Their names; "1", "2" and so on where the file has no header.
        repeated: Those whose name the header holds more than once, with that name.
        rows: In the order of the file.
        counted_in: What the rows' numbers count: "line" or "record".
        notes: What was guessed about the file.
        read_as: The same as fields of `ReadOptions`.
        names_among_rows: What the first line holds, where it is a row as asked for, but must be names of columns.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    repeated: Mapping[str, str] = field(default_factory=dict)
    counted_in: str = "line"
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)
    names_among_rows: tuple[str, ...] = ()

    def records(self) -> Iterator[tuple[str, str, dict[str, object]]]:
        """Yield for each row its place (for messages), its number, and its values by column."""
        for number, values in self.rows:
            yield f"{self.name}, {self.counted_in} {number}", str(number), dict(zip(self.columns, values, strict=True))

    def values_of(self, column: str) -> list[object]:
        """Return a column's values."""
        index = self.columns.index(column)
        return [values[index] for _, values in self.rows]


def read_table(path: Path, format: Format, options: ReadOptions, skips: Skips) -> Table:
    """Read a file of rows; `skips` takes the bad ones.

    Raises:
        DataError: If the file cannot be read, or holds no rows.
    """
    if format == "parquet":
        table = _read_parquet(path)
    else:
        loaded = load_text(path, options.encoding)
        if format in ("jsonl", "json"):
            table = _read_json(loaded, skips)
        elif format == "text":
            rows = [(number, [line]) for number, line in enumerate(lines_of(loaded.text), 1) if line.strip()]
            table = Table(name=loaded.name, columns=("text",), rows=rows, notes=(*loaded.notes, "one text a line"))
        else:
            table = _read_delimited(loaded, options, skips)
    if not table.rows:
        skips.finished(0)
    return table


def _read_json(loaded: LoadedText, skips: Skips) -> Table:
    records = list(records_of(loaded, skips))
    columns = tuple(dict.fromkeys(name for _, record in records for name in record))
    rows = [(number, [record.get(name) for name in columns]) for number, record in records]
    counted_in = "line" if is_json_lines(loaded.text) else "record"
    return Table(name=loaded.name, columns=columns, rows=rows, counted_in=counted_in, notes=loaded.notes)


def records_of(loaded: LoadedText, skips: Skips) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number (of the line, or of the record in a list) and the record of each JSON object."""
    unit = "line"
    numbered: Iterable[tuple[int, Any]] = _json_lines(loaded, skips)
    if not is_json_lines(loaded.text):
        data = parse_json(loaded)
        if isinstance(data, dict) and isinstance(data.get("data"), list):
            data = data["data"]
        if not isinstance(data, list):
            raise DataError(
                f"{loaded.name} holds one JSON {_json_type(data)}, not records",
                allowed="one JSON object a line, or a list of objects",
            )
        unit, numbered = "record", enumerate(data, 1)
    for number, record in numbered:
        if isinstance(record, dict):
            yield number, record
        else:
            skips.add(f"{loaded.name}, {unit} {number}", f"not a JSON object but {_json_type(record)}")


def _json_lines(loaded: LoadedText, skips: Skips) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines_of(loaded.text), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            shown = HALF_CHARACTER.sub("\ufffd", line[:60].strip())
            skips.add(f"{loaded.name}, line {number}", f"not JSON ({error}); it begins {shown!r}")
        else:
            yield number, record


def _json_type(value: object) -> str:
    names = {dict: "object", list: "list", str: "string", type(None): "null"}
    return names.get(type(value), "number or boolean")


def _read_parquet(path: Path) -> Table:
    """Read a Parquet file; numbers of classes become their names where `datasets` keeps them in the file."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(load_bytes(path)))
    except pyarrow.ArrowException as error:
        raise DataError(
            f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}", todo="Write or download it again."
        ) from error
    names = _class_names(table.schema.metadata or {})
    columns = [
        [_class_name(value, names[name]) for value in column.to_pylist()] if name in names else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    rows = list(enumerate(zip(*columns, strict=True), 1))
    notes = tuple(
        f"the classes of column {name!r} are named in the file" for name in table.column_names if name in names
    )
    return Table(name=str(path), columns=tuple(table.column_names), rows=rows, counted_in="record", notes=notes)


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Find columns of type ClassLabel, alone or in a list, in what `datasets` writes into a file's metadata."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError):
        return {}
    found = {}
    for name, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            found[str(name)] = [str(label) for label in inner["names"]]
    return found


def _class_name(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_class_name(part, names) for part in value]
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None  # `datasets` writes -1 for a missing label


def _read_delimited(loaded: LoadedText, options: ReadOptions, skips: Skips) -> Table:
    delimiter, notes = _delimiter(loaded, options)
    if loaded.text.startswith("sep=") and loaded.text[5:6] in "\r\n":
        loaded = LoadedText(loaded.name, loaded.suffix, "\n" + loaded.text.split("\n", 1)[-1])  # Excel's own first line
    read_as: dict[str, Any] = {}
    quoted = options.quoting == "csv"
    if options.quoting is None and '"' in loaded.text:
        quoted = _is_quoted(loaded.text, delimiter)
        read_as["quoting"] = "csv" if quoted else "none"
        notes.append("double quotes enclose texts, as in CSV" if quoted else "double quotes are part of the texts")
    lines = [
        (number, fields)
        for number, fields in (_quoted_lines if quoted else _plain_lines)(loaded, delimiter, skips)
        if any(field.strip() for field in fields)
    ]
    if not lines:
        return Table(name=loaded.name, columns=(), rows=())
    first, rest = lines[0][1], [fields for _, fields in lines[1:_LINES_LOOKED_AT]]
    named = options.named_columns()
    names_among_rows: tuple[str, ...] = ()
    repeated: dict[str, str] = {}
    if has_header := _has_header(first, rest, options):
        columns, where = _unique_names(first), "the header has"
        counts = Counter(name.strip() for name in first)
        repeated = {
            called: name.strip()
            for called, name in zip(columns, first, strict=True)
            if name.strip() and counts[name.strip()] > 1
        }
        said = f"the first line names the columns: {', '.join(columns)}"
    else:
        width = Counter(len(fields) for _, fields in lines).most_common(1)[0][0]
        columns, where = tuple(str(number + 1) for number in range(width)), "most rows have"
        said = f"no header: the columns are called {', '.join(str(number + 1) for number in range(len(first)))}"
        if named and _is_above_numbers(first, rest):
            names_among_rows = tuple(first)
    if options.header is None and not named:
        read_as["header"] = "first_line" if has_header else "none"
        notes.append(said)
    elif not has_header and (names_among_rows or any(map(_is_known_name, first))):
        notes.append(f"the first line is read as an example, though it looks like names: {', '.join(first)}")
    if repeated:
        twice = ", ".join(map(repr, dict.fromkeys(repeated.values())))
        notes.append(f"the header holds {twice} more than once: these columns are called {', '.join(repeated)}")
    rows: list[Row] = []
    for number, fields in lines[1:] if has_header else lines:
        if len(fields) > len(columns) and not any(fields[len(columns) :]):
            fields = fields[: len(columns)]
        if len(fields) == len(columns):
            rows.append((number, fields))
        else:
            skips.add(f"{loaded.name}, line {number}", f"{counted(len(fields), 'column')} where {where} {len(columns)}")
    return Table(
        name=loaded.name,
        columns=columns,
        rows=rows,
        repeated=repeated,
        notes=(*loaded.notes, *notes),
        read_as=read_as,
        names_among_rows=names_among_rows,
    )


def _delimiter(loaded: LoadedText, options: ReadOptions) -> tuple[str, list[str]]:
    if options.delimiter:
        if len(options.delimiter) != 1 or options.delimiter in '"\r\n':
            raise DataError(
                f"the delimiter {options.delimiter!r} cannot separate columns",
                allowed="one character that is no double quote and no line end",
            )
        return options.delimiter, []
    first = next((line for line in lines_of(loaded.text) if line.strip()), "")
    if first.startswith("sep=") and len(first) == 5:
        return first[4], []
    usual = "," if loaded.suffix == ".csv" else "\t"
    if usual == "\t" and "\t" in first:
        return "\t", []
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter == usual or delimiter not in first:
        return usual, []
    return delimiter, [f"{_DELIMITERS[delimiter]} separate the columns"]


def _is_quoted(text: str, delimiter: str) -> bool:
    """Whether a table's double quotes are those of CSV, rather than characters of its texts.

    They are if every field that holds one begins and ends with one, and those inside are doubled; with tabs between
    the columns also only if they were needed at least once (around a tab, a line end or a quote), or every field has
    them: `"Hello."` alone may be a sentence in quotes. With other delimiters they also are if lines have different
    numbers of columns without them.
    """
    edge = re.escape(delimiter)
    # Possessive quantifiers, so that a file of any size is matched in one pass.
    one = rf'(?:"(?:[^"]|"")*+"|[^"{edge}\r\n]*+)'
    if not re.match(rf"(?:{one}(?:{edge}|\r\n?|\n|\Z))*+\Z", text):
        return delimiter != "\t" and len({line.count(delimiter) for line in lines_of(text) if line}) > 1
    if delimiter != "\t":
        return True
    enclosed = re.findall(rf'(?<![^{edge}\r\n])"((?:[^"]|"")*+)"(?=[{edge}\r\n]|\Z)', text)
    if any(mark in field for field in enclosed for mark in ('""', delimiter, "\n", "\r")):
        return True
    lines = [line for line in text.replace("\r", "\n").split("\n") if line]
    return len(enclosed) == sum(line.count(delimiter) + 1 for line in lines)


def _plain_lines(loaded: LoadedText, delimiter: str, skips: Skips) -> Iterator[Line]:
    for number, line in enumerate(lines_of(loaded.text), 1):
        yield number, line.split(delimiter)


def _quoted_lines(loaded: LoadedText, delimiter: str, skips: Skips) -> Iterator[Line]:
    with long_fields():
        reader = csv.reader(io.StringIO(loaded.text, newline=""), delimiter=delimiter)
        while True:
            line = reader.line_num + 1
            place = f"{loaded.name}, line {line}"
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                skips.add(place, f"not CSV ({error})")
                continue
            if reader.line_num > line + _MANY_LINES:
                skips.add(place, f"a row of {reader.line_num - line} lines (is a double quote there not closed?)")
                continue
            yield line, fields


def _has_header(first: Sequence[str], rest: Sequence[Sequence[str]], options: ReadOptions) -> bool:
    if options.header is not None:
        return options.header == "first_line"
    first = [field.strip() for field in first]
    named = options.named_columns()
    if any(name in first for name in named if not name.isdecimal()):
        return True
    if any(name.isdecimal() for name in named):
        return False
    if named or any(map(_is_known_name, first)) or _is_above_numbers(first, rest):
        return True
    if len(set(first)) < len(first) or not all(first) or any(map(is_number, first)):
        return False
    if any(name == field.strip() for fields in rest for name, field in zip(first, fields, strict=False)):
        return False
    return all(len(name) <= _LONGEST_NAME and name.count(" ") < 3 and name[-1] not in ".!?。！？" for name in first)


def _is_known_name(field: str) -> bool:
    return field.strip().casefold() in KNOWN_NAMES


def _is_above_numbers(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first line holds different words, one of them above a column of numbers."""
    first = [field.strip() for field in first]
    whole = [fields for fields in rest if len(fields) == len(first)]
    if not whole or not all(first) or any(map(is_number, first)) or len(set(first)) < len(first):
        return False
    return any(all(is_number(fields[place].strip()) for fields in whole) for place in range(len(first)))


def is_number(field: str) -> bool:
    """Whether a field is written as a number, with a point or a comma."""
    try:
        float(field.replace(",", ".", 1))
    except ValueError:
        return False
    return True


def _unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Call columns without name by their number (from 1), and repeated ones "name (2)"."""
    result: list[str] = []
    for number, name in enumerate(names, 1):
        name = name.strip() or str(number)
        unique, count = name, 2
        while unique in result:
            unique, count = f"{name} ({count})", count + 1
        result.append(unique)
    return tuple(result)
