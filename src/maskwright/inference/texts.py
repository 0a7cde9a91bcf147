"""Files of texts: read one per line or one column of a table, also compressed; read one whole text; write results."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.core.errors import DataError
from maskwright.core.storage.files import open_file, refuse_overwrite, write_text
from maskwright.core.text.surrogates import surrogate_problem
from maskwright.data.files import COMPRESSIONS, decoded_lines, decompressed, reading, refuse_line
from maskwright.data.tables import (
    TABLE_SUFFIXES,
    TEXT_COLUMNS,
    OnColumn,
    column_texts,
    file_texts,
    json_column,
    json_records,
    json_texts,
    json_values,
    records_of,
)

_HINT = "--column {}"


def read_texts(path: Path | str, column: str | None = None, on_column: OnColumn = lambda name: None) -> list[str]:
    """Read the texts of a file, also compressed as `.gz` or `.zst`; "-" is standard input.

    `.csv`, `.tsv` and `.parquet`: one text per row, from a column. `.jsonl`: one per line, a string or a field of an
    object; `.json`: these in a list or in lines. Anything else: one per line. Blank lines of `.jsonl` and other files
    are empty texts, so that line i stays text i.

    Args:
        column: Column or field of the texts; None for one with a usual name, or the only one that holds texts.
        on_column: Receives the name of the column that is read, if the file has columns.

    Raises DataError if there is no such file, it contains no text, it has no such column or several could be meant, or
    a line of it cannot be read.
    """
    if str(path) == "-":
        return _checked(_lines(sys.stdin.buffer, "standard input"), "standard input")
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"{path} is a folder", allowed="a .txt, .json, .jsonl, .csv, .tsv or .parquet file of texts")
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()
    format = "jsonl" if suffix == ".json" else TABLE_SUFFIXES.get(suffix)
    if column is not None and format is None:
        raise DataError(f"{path} has no columns", hint="Leave --column out, or give a CSV, JSON Lines or Parquet file.")
    with reading(path) as file:
        if format in ("csv", "tsv", "parquet"):
            return _checked(file_texts(file, path, format, column, _HINT, refuse_line, on_column), str(path))
        lines = _lines(decompressed(file, path), str(path))
        if format is None:
            return _checked(lines, str(path))
        if suffix == ".json":
            values = list(json_records("\n".join(lines), str(path), refuse_line))
        else:
            values = list(json_values((line if line.strip() else '""' for line in lines), str(path), refuse_line))
        field = column or json_column(values, str(path), _HINT)
        if field is not None:
            on_column(field)
        return _checked(json_texts(values, field or TEXT_COLUMNS[0], refuse_line), str(path))


def gather(
    texts: object,
    file: Path | str | None,
    column: str | None = None,
    on_column: OnColumn = lambda name: None,
    *,
    out: Path | str | None = None,
) -> list[str]:
    """Return the given texts, then those of a file (`read_texts`); `out` is the file that will be written.

    `texts` are a text, several, or a column of a table in memory (`records_of`). Raises DataError if they are something
    else, there are none, or one contains a lone surrogate, which no tokenizer accepts; or if `out` is the file.
    """
    if out is not None:
        refuse_overwrite(out, [file])
    from_file = [] if file is None else read_texts(file, column, on_column)
    gathered = [*_in_memory(texts, column, on_column), *from_file]
    for number, text in enumerate(gathered, start=1):
        if problem := surrogate_problem(text):
            line = number + len(from_file) - len(gathered)
            raise DataError(
                f"{f'{file}, line {line}' if line > 0 else f'input {number}'}: {problem}",
                hint="Give whole characters, as UTF-8.",
            )
    if not gathered:
        raise DataError(
            "no text was given", hint="Pass texts, on the command line each in quotes, or a file (`--file`)"
        )
    return gathered


def _in_memory(texts: object, column: str | None, on_column: OnColumn) -> Sequence[str]:
    if isinstance(texts, str):
        return [texts]
    if (records := records_of(texts, "texts")) is not None:
        columns, rows = records.columns, records.numbered()
        return list(column_texts(columns, rows, column, records.name, "column={!r}", refuse_line, on_column))
    each: list[Any] = list(texts) if isinstance(texts, Iterable) and not isinstance(texts, Mapping) else [texts]
    if wrong := next((type(text).__name__ for text in each if not isinstance(text, str)), ""):
        raise DataError(
            f"the texts hold a {wrong}",
            allowed="a text, a list of texts, a DataFrame, a Hugging Face Dataset, or a list of dictionaries",
        )
    return each


def _checked(texts: Iterable[str], name: str) -> list[str]:
    read = list(texts)
    if not any(text.strip() for text in read):
        raise DataError(f"{name} contains no text", hint="Give a file of texts.")
    return read


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in decoded_lines(stream, name))


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Write a `.jsonl` file atomically, one value per line."""
    write_text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def read_source(text: str | None, file: Path | None) -> str:
    """Return the text itself, or that of a file; "-" is standard input.

    Raises DataError if both or neither are given, or the file cannot be read as UTF-8.
    """
    if (text is None) == (file is None):
        raise DataError(
            "give the text to show either as --text or as --text-file", hint='For example `--text "The cat sat."`.'
        )
    if text is not None:
        return text
    assert file is not None
    name = "standard input" if str(file) == "-" else str(file)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else open_file(file.expanduser()) as source:
            return source.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}", hint="Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from error
