"""CSV and TSV, as spreadsheets, pandas and benchmarks write them: with or without header, quoted or not."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.data.sources.tables import long_fields
from maskwright.finetuning.readers.column_names import KNOWN_NAMES
from maskwright.finetuning.readers.loading import LoadedText, lines_of
from maskwright.finetuning.readers.options import ReadOptions
from maskwright.finetuning.readers.quoting import quotes_quote
from maskwright.finetuning.readers.rows import Row, Table, repeated_names, unique_names
from maskwright.finetuning.readers.skips import Skips

_DELIMITERS = ",;\t|"
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LOOKED_AT = 200
_LONGEST_NAME = 40
# A quoted field of more lines than this is an unbalanced quotation mark.
_MANY_LINES = 100

Line = tuple[int, list[str]]
"""Line number and fields."""


def read_delimited(loaded: LoadedText, options: ReadOptions, skips: Skips) -> Table:
    """Read a table whose rows are lines.

    Args:
        loaded: The file.
        options: Delimiter, quoting and header are guessed where they are left open; a header is there if the columns
            named in the options stand in the first line.
        skips: Takes the rows with too many or too few columns.
    """
    delimiter, notes = _delimiter(loaded, options)
    if loaded.text.startswith("sep=") and loaded.text[5:6] in "\r\n":
        loaded = LoadedText(loaded.name, loaded.suffix, "\n" + loaded.text.split("\n", 1)[-1])  # Excel's own first line
    read_as: dict[str, Any] = {}
    quoted = options.quoting == "csv" if options.quoting else quotes_quote(loaded.text, delimiter)
    if options.quoting is None and '"' in loaded.text:
        quoted = quoted or (delimiter != "\t" and not _even_without_quotes(loaded.text, delimiter))
        read_as["quoting"] = "csv" if quoted else "none"
        notes.append("double quotes stand around texts, as in CSV" if quoted else "double quotes are part of the texts")
    lines = list(_quoted_lines(loaded, delimiter, skips) if quoted else _plain_lines(loaded, delimiter))
    lines = [(number, fields) for number, fields in lines if any(field.strip() for field in fields)]
    has_header = bool(lines) and _has_header([fields for _, fields in lines[:_LOOKED_AT]], options)
    if lines and options.header is None and not options.named_columns():
        read_as["header"] = "first_line" if has_header else "none"
        notes.append(_header_note(has_header, lines[0][1]))
    names_among_rows: tuple[str, ...] = ()
    if lines and not has_header and (options.header is not None or options.named_columns()):
        if options.named_columns() and _stands_above_numbers([fields for _, fields in lines[:_LOOKED_AT]]):
            names_among_rows = tuple(lines[0][1])
        if names_among_rows or any(map(_is_known_name, lines[0][1])):
            notes.append(f"the first line is read as an example, though it looks like names: {', '.join(lines[0][1])}")
    columns: Sequence[str]
    repeated: dict[str, str] = {}
    if has_header:
        columns, where = lines[0][1], "the header has"
        if repeated := repeated_names(columns):
            twice = ", ".join(map(repr, dict.fromkeys(repeated.values())))
            notes.append(f"the header holds {twice} more than once: these columns are called {', '.join(repeated)}")
    else:
        width = Counter(len(fields) for _, fields in lines).most_common(1)[0][0] if lines else 0
        columns, where = [str(number + 1) for number in range(width)], "most rows have"
    rows = []
    for number, fields in lines[1:] if has_header else lines:
        if len(fields) > len(columns) and not any(fields[len(columns) :]):
            fields = fields[: len(columns)]
        if len(fields) == len(columns):
            rows.append(Row(number, fields))
        else:
            skips.add(f"{loaded.name}, line {number}", f"{counted(len(fields), 'column')} where {where} {len(columns)}")
    return Table(
        name=loaded.name,
        columns=unique_names(columns),
        rows=tuple(rows),
        repeated=repeated,
        notes=(*loaded.notes, *notes),
        read_as=read_as,
        names_among_rows=names_among_rows,
    )


def _delimiter(loaded: LoadedText, options: ReadOptions) -> tuple[str, list[str]]:
    if options.delimiter:
        if len(options.delimiter) != 1 or options.delimiter in '"\r\n':
            raise DataError(
                f"the delimiter {options.delimiter!r} cannot stand between columns",
                allowed="one character that is no double quote and no line end",
            )
        return options.delimiter, []
    first = next((line for line in lines_of(loaded.text) if line.strip()), "")
    if first.startswith("sep=") and len(first) == 5:
        return first[4], []
    if loaded.suffix != ".csv" and "\t" in first:
        return "\t", []
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter not in first:
        return ("," if loaded.suffix == ".csv" else "\t"), []
    usual = "," if loaded.suffix == ".csv" else "\t"
    return delimiter, [f"{_NAMES[delimiter]} stand between the columns"] if delimiter != usual else []


def _even_without_quotes(text: str, delimiter: str) -> bool:
    """Whether all lines have the same number of columns if quotes mean nothing (an unbalanced one then harms none)."""
    return len({line.count(delimiter) for line in lines_of(text) if line}) == 1


def _plain_lines(loaded: LoadedText, delimiter: str) -> Iterator[Line]:
    for number, line in enumerate(lines_of(loaded.text), 1):
        yield number, line.split(delimiter)


def _quoted_lines(loaded: LoadedText, delimiter: str, skips: Skips) -> Iterator[Line]:
    with long_fields():
        reader = csv.reader(io.StringIO(loaded.text, newline=""), delimiter=delimiter)
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                skips.add(f"{loaded.name}, line {line}", f"not CSV ({error})")
                continue
            if reader.line_num > line + _MANY_LINES:
                lines = reader.line_num - line
                skips.add(
                    f"{loaded.name}, line {line}", f"a row of {lines} lines (is a double quote there not closed?)"
                )
                continue
            yield line, fields


def _has_header(lines: Sequence[Sequence[str]], options: ReadOptions) -> bool:
    if options.header is not None:
        return options.header == "first_line"
    first = [field.strip() for field in lines[0]]
    named = options.named_columns()
    if any(name in first for name in named if not name.isdecimal()):
        return True
    if any(name.isdecimal() for name in named):
        return False
    if named or any(map(_is_known_name, first)):
        return True
    return _looks_like_names(first, lines[1:])


def _is_known_name(field: str) -> bool:
    return field.strip().casefold() in KNOWN_NAMES


def _stands_above_numbers(lines: Sequence[Sequence[str]]) -> bool:
    """Whether the first line holds words alone, one of them above a column of numbers."""
    first = [field.strip() for field in lines[0]]
    whole = [fields for fields in lines[1:] if len(fields) == len(first)]
    if not whole or not all(first) or any(map(is_number, first)):
        return False
    return any(all(is_number(fields[place].strip()) for fields in whole) for place in range(len(first)))


def _looks_like_names(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first line differs from the rest as names do: no numbers above numbers, no value that comes again."""
    whole = [fields for fields in rest if len(fields) == len(first)]
    if len(set(first)) < len(first) or not all(first) or any(map(is_number, first)):
        return False
    for place, name in enumerate(first):
        values = [fields[place].strip() for fields in whole]
        if values and all(map(is_number, values)):
            return True
        if name in values:
            return False
    return all(len(name) <= _LONGEST_NAME and name.count(" ") < 3 and name[-1] not in ".!?。！？" for name in first)


def _header_note(has_header: bool, first: Sequence[str]) -> str:
    if has_header:
        return f"the first line names the columns: {', '.join(unique_names(first))}"
    numbers = ", ".join(str(number + 1) for number in range(len(first)))
    return f"no header: the columns are called {numbers}"


def is_number(field: str) -> bool:
    """Whether a field is written as a number, with a point or a comma."""
    try:
        float(field.replace(",", ".", 1))
    except ValueError:
        return False
    return True
