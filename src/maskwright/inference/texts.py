"""Files of texts: read one per line or one column of a table, also compressed; read one whole text; write results."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.core.errors import DataError, json_problem
from maskwright.core.files import open_file, parse_json, write_text
from maskwright.core.surrogates import surrogate_problem
from maskwright.data.files import (
    COMPRESSIONS,
    BadLine,
    decompressed,
    lines_in,
    reading,
    undecodable,
)
from maskwright.data.tables import csv_documents, json_column, parquet_documents

_BOM = b"\xef\xbb\xbf"


def read_texts(
    path: Path | str, column: str | None = None, on_column: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Read the texts of a file, also compressed as `.gz` or `.zst`; "-" is standard input.

    `.csv`, `.tsv` and `.parquet`: one text per row, from a column. `.jsonl`: one per line, a string or a field of an
    object. Anything else: one per line. Blank lines of `.jsonl` and other files are empty texts, so that line i stays
    text i.

    Args:
        column: Column or field of the texts; None for `text`, `content` or the only one that holds texts.
        on_column: Receives the name of the column that is read, if the file has columns.

    Raises DataError if there is no such file, it contains no text, it has no such column or several could be meant, or
    a line of it cannot be read.
    """
    if str(path) == "-":
        return _checked(_lines(sys.stdin.buffer, "standard input"), "standard input")
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"{path} is a folder", allowed="a .txt, .jsonl, .csv, .tsv or .parquet file of texts")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = "".join(suffixes[-2:-1] if suffixes and suffixes[-1] in COMPRESSIONS else suffixes[-1:])
    if column is not None and kind not in (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson"):
        raise DataError(f"{path} has no columns", todo="Leave --column out, or give a CSV, JSON Lines or Parquet file.")
    with reading(path) as file:
        try:
            if kind == ".parquet":
                return _checked(parquet_documents(file, path, column, on_column), str(path))
            stream = decompressed(file, path)
            if kind in (".csv", ".tsv"):
                return _checked(csv_documents(stream, path, column, _refuse, on_column), str(path))
            lines = _lines(stream, str(path))
            if kind in (".json", ".jsonl", ".ndjson"):
                return _checked(_of_json(list(lines), str(path), column, on_column), str(path))
            return _checked(lines, str(path))
        except DataError as error:
            todo = error.todo.replace(f"`{path}#", "`--column ")  # a corpus is named with its column
            raise DataError(error.problem, allowed=error.allowed, todo=todo) from error


def gather(
    texts: Sequence[str],
    file: Path | str | None,
    column: str | None = None,
    on_column: Callable[[str], None] = lambda name: None,
) -> list[str]:
    """Return the given texts, then those of a file (`read_texts`).

    Raises DataError if there are none, or one contains a lone surrogate, which no tokenizer accepts.
    """
    of_file = [] if file is None else read_texts(file, column, on_column)
    gathered = [*([texts] if isinstance(texts, str) else texts), *of_file]
    for number, text in enumerate(gathered, start=1):
        if problem := surrogate_problem(text):
            line = number + len(of_file) - len(gathered)
            raise DataError(
                f"{f'{file}, line {line}' if line > 0 else f'input {number}'}: {problem}",
                todo="Give whole characters, as UTF-8.",
            )
    if not gathered:
        raise DataError(
            "no text was given", todo="Pass texts, on the command line each in quotes, or a file (`--file`)"
        )
    return gathered


def _checked(texts: Iterable[str], name: str) -> list[str]:
    found = list(texts)
    if not any(text.strip() for text in found):
        raise DataError(f"{name} contains no text", todo="Give a file of texts.")
    return found


def _refuse(bad: BadLine) -> None:
    raise DataError(f"{bad.place}: {bad.problem}", todo=bad.todo or "Correct the line.")


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(lines_in(stream, name), start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            _refuse(undecodable(line, error, name, number))


def _of_json(lines: list[str], name: str, field: str | None, on_column: Callable[[str], None]) -> Iterator[str]:
    field = field or json_column("\n".join(lines).encode("utf-8", "surrogatepass"), name)
    if field is not None:
        on_column(field)
    for number, line in enumerate(lines, start=1):
        place = f"{name}, line {number}"
        allowed = f"a string, or an object with a string field {field or 'text'!r}"
        try:
            value = parse_json(line) if line.strip() else ""
        except ValueError as error:
            raise DataError(f"{place}: not JSON ({json_problem(error)})", allowed=allowed) from error
        if isinstance(value, dict):
            if field not in value:
                fields = ", ".join(map(repr, list(value)[:8])) or "none"
                raise DataError(f"{place}: no field {field!r} (found: {fields})", allowed=allowed)
            value = value[field]
        if not isinstance(value, str):
            raise DataError(f"{place}: found {type(value).__name__} instead of a text", allowed=allowed)
        yield value


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Write a `.jsonl` file atomically, one value per line."""
    write_text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def read_source(text: str | None, file: Path | None) -> str:
    """Return the text itself, or that of a file; "-" is standard input.

    Raises DataError if both or neither are given, or the file cannot be read as UTF-8.
    """
    if (text is None) == (file is None):
        raise DataError(
            "give the text to show either as --text or as --text-file", todo='For example `--text "The cat sat."`.'
        )
    if text is not None:
        return text
    assert file is not None
    name = "standard input" if str(file) == "-" else str(file)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else open_file(file.expanduser()) as source:
            return source.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror}", todo="Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text (byte {error.start})", todo="Save it as UTF-8.") from error
