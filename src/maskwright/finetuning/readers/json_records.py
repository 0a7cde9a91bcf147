"""Records in JSON: one object a line, or a list of them."""

import json
from collections.abc import Iterator
from typing import Any

from maskwright.core.errors import DataError
from maskwright.core.half_characters import HALF_CHARACTER
from maskwright.finetuning.readers.loading import LoadedText, lines_of
from maskwright.finetuning.readers.rows import Row, Table
from maskwright.finetuning.readers.skips import Skips

_SHOWN = 60
Record = dict[str, Any]


def parse_json(loaded: LoadedText) -> Any:
    """Parse a file that is one JSON value.

    Raises:
        DataError: If it is not JSON; with line and column.
    """
    try:
        return json.loads(loaded.text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{loaded.name}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})",
            todo="Check that the file is whole; one JSON object a line is read too.",
        ) from error
    except RecursionError as error:
        raise DataError(f"{loaded.name}: JSON nested too deeply to be data") from error


def is_json_lines(text: str) -> bool:
    """Whether a text is one JSON object a line, rather than one JSON value over many lines."""
    lines = (line for line in lines_of(text) if line.strip())
    first, second = next(lines, ""), next(lines, None)
    if not first.lstrip().startswith("{"):
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        # The first line may be broken, or only the beginning of a value over many lines: the second one tells.
        return second is not None and second.lstrip().startswith("{") and second.rstrip().endswith("}")
    return second is not None or "data" not in json.loads(first)


def records_of(loaded: LoadedText, skips: Skips) -> Iterator[tuple[int, Record]]:
    """Yield the number (of the line, or of the record in a list) and the record of each JSON object."""
    if is_json_lines(loaded.text):
        yield from _line_records(loaded, skips)
        return
    data = parse_json(loaded)
    if isinstance(data, dict) and isinstance(data.get("data"), list):
        data = data["data"]
    if not isinstance(data, list):
        raise DataError(
            f"{loaded.name} holds one JSON {_kind(data)}, not records",
            allowed="one JSON object a line, or a list of objects",
        )
    for number, record in enumerate(data, 1):
        if isinstance(record, dict):
            yield number, record
        else:
            skips.add(f"{loaded.name}, record {number}", f"not a JSON object but {_kind(record)}")


def _line_records(loaded: LoadedText, skips: Skips) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(lines_of(loaded.text), 1):
        if not line.strip():
            continue
        place = f"{loaded.name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            shown = HALF_CHARACTER.sub("\ufffd", line[:_SHOWN].strip())
            skips.add(place, f"not JSON ({error}); it begins {shown!r}")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            skips.add(place, f"not a JSON object but {_kind(record)}")


def read_json_records(loaded: LoadedText, skips: Skips) -> Table:
    """Read records as a table; a field that a record lacks is None."""
    records = list(records_of(loaded, skips))
    columns = tuple(dict.fromkeys(name for _, record in records for name in record))
    rows = tuple(Row(number, [record.get(name) for name in columns]) for number, record in records)
    counted_in = "line" if is_json_lines(loaded.text) else "record"
    return Table(name=loaded.name, columns=columns, rows=rows, counted_in=counted_in, notes=loaded.notes)


def _kind(value: object) -> str:
    match value:
        case dict():
            return "object"
        case list():
            return "list"
        case str():
            return "string"
        case bool() | int() | float():
            return "number or boolean"
        case _:
            return "null"
