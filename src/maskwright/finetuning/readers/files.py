"""A labeled file before it is parsed: its text, its format, and the rows that are left out of it.

What is guessed about its encoding is in the notes.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError, nearest
from maskwright.data.sources.files import COMPRESSIONS, decompressed, guess_encoding, reading, undecodable
from maskwright.finetuning.examples import Skipped
from maskwright.finetuning.readers.options import Format, Kind, ReadOptions

_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LOOKED_AT = 1 << 14
# Control characters without the white space among them. They stay in the texts: a tokenizer drops them or knows them.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_AS_CSV = "Export the sheet as CSV (UTF-8) and name that file."
_UNPACK = "Unpack it, or end its name in {}."
# What these files begin with, and no text does: ZIP's local file header (xlsx, ods), OLE's compound file (xls), PDF,
# the magic numbers of gzip (RFC 1952) and Zstandard (RFC 8878).
_NO_TEXT = (
    (b"PK\x03\x04", "a spreadsheet or a zip archive", f"{_AS_CSV} A zip archive must be unpacked."),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet or another document of Microsoft Office", _AS_CSV),
    (b"%PDF-", "a PDF", "Give a file of rows, e.g. CSV (UTF-8)."),
    (b"\x1f\x8b", "compressed by gzip", _UNPACK.format(".gz")),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard", _UNPACK.format(".zst")),
)


@dataclass(frozen=True, slots=True)
class LoadedText:
    """A file's text.

    Attributes:
        name: The file, for messages.
        suffix: Its suffix without `.gz` or `.zst`, in lower case.
        text: All of it, without byte order mark. Bytes that are damaged UTF-8 are lone surrogates.
        notes: What was guessed, and what is unusual in it.
    """

    name: str
    suffix: str
    text: str
    notes: tuple[str, ...] = ()


def suffix_of(path: Path) -> str:
    """Return a file's suffix without `.gz` or `.zst`, in lower case."""
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return bare.suffix.lower()


def check_exists(path: Path) -> None:
    """Raise DataError if there is nothing at `path`; the nearest name there is suggested."""
    if path.exists():
        return
    folder = path.parent
    names = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
    guess = nearest(path.name, names)
    if guess:
        todo = f"Did you mean '{folder / guess}'?"
    else:
        todo = "Check the path." if folder.is_dir() else f"The folder {folder} does not exist either."
    raise DataError(f"no such file: {path}", todo=todo)


def load_bytes(path: Path) -> bytes:
    """Read a file whole, unpacked.

    Raises:
        DataError: If it is missing, a folder, empty, damaged, a spreadsheet or the like, or may not be read.
    """
    check_exists(path)
    if path.is_dir():
        inside = sorted(other.name for other in path.iterdir() if not other.name.startswith("."))
        shown = ", ".join(inside[:8]) + (", ..." if len(inside) > 8 else "") if inside else "nothing"
        raise DataError(f"{path} is a folder, not a file; it holds {shown}", todo="Name the file.")
    with reading(path) as file:
        data = decompressed(file, path).read()
    if not data.strip():
        raise DataError(f"{path} is empty ({len(data)} bytes)", todo="Give a file with examples.")
    for beginning, what, todo in _NO_TEXT:
        if data.startswith(beginning):
            raise DataError(f"{path} is {what}, not text", todo=todo)
    return data


def load_text(path: Path, encoding: str | None = None) -> LoadedText:
    """Read a text file whole.

    UTF-8, with or without byte order mark, and UTF-16 with one are known for certain. Anything else is guessed and
    said. Where single bytes of UTF-8 are damaged, they become lone surrogates, so that the rows with them can be left
    out.

    Raises:
        DataError: As `load_bytes`; or if the encoding is not known or does not fit.
    """
    data = load_bytes(path)
    text, notes = decode(data, str(path), encoding)
    if control := _CONTROL.findall(text):
        where = text.count("\n", 0, text.index(control[0])) + 1
        kinds = ", ".join(sorted({repr(character)[1:-1] for character in control}))
        notes = (*notes, f"control characters are kept: {len(control)} ({kinds}), the first in line {where}")
    return LoadedText(str(path), suffix_of(path), text, notes)


def decode(data: bytes, name: str, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    """Return bytes as text (see `load_text`), and what was guessed of them; `name` is for messages."""
    if encoding is not None:
        return _decode_as(data, name, encoding), ()
    if data.startswith(_UTF_16_MARKS):
        return _decode_as(data, name, "utf-16"), ("UTF-16, as its byte order mark says",)
    data = data.removeprefix(codecs.BOM_UTF8)
    if data.count(0) > len(data) // 5:
        raise DataError(
            f"{name} looks like UTF-16 without a byte order mark",
            todo="Name its encoding, e.g. utf-16-le, or convert it to UTF-8.",
        )
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        around = (data[max(0, error.start - _LOOKED_AT) : error.start], data[error.start : error.start + _LOOKED_AT])
        guess, codec = guess_encoding(*around)
        line = data.count(b"\n", 0, error.start) + 1
        if not codec and "damaged" in guess:
            return data.decode("utf-8", errors="surrogateescape"), (f"damaged UTF-8 from line {line} on",)
        try:
            text = data.decode(codec) if codec else ""
        except UnicodeDecodeError:
            text = ""
        if not text:
            problem = undecodable(data, error, name, line)
            raise DataError(
                f"{problem.place}: {problem.problem}", todo=f"{problem.todo}, or name its encoding."
            ) from error
        return text, (f"not UTF-8 (line {line}): {guess}, and is read as {codec}; name the encoding if that is wrong",)


def _decode_as(data: bytes, name: str, encoding: str) -> str:
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise DataError(
            f"unknown encoding {encoding!r}", allowed="utf-8, gb18030, big5, cp1252, utf-16 and others of Python's"
        ) from error
    except UnicodeError as error:
        raise DataError(f"{name} is not {encoding}: {error}", todo="Name another encoding, or none.") from error


def lines_of(text: str) -> list[str]:
    """Cut a text into lines at line feeds, with or without carriage return, and nowhere else.

    `str.splitlines` would also cut at form feeds, U+0085 and U+2028, which stand inside real sentences.
    """
    if "\n" not in text:
        lines = text.split("\r")
    elif "\r" in text:
        lines = [line.removesuffix("\r") for line in text.split("\n")]
    else:
        lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


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


FORMATS_OF: Mapping[Kind, tuple[Format, ...]] = {
    "classification": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "regression": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "multi_label": ("csv", "tsv", "jsonl", "json", "parquet", "text"),
    "tagging": ("conll", "jsonl", "json", "parquet", "text"),
    "question_answering": ("squad", "jsonl", "json", "csv", "tsv", "parquet"),
    "multiple_choice": ("race", "dream", "jsonl", "json", "csv", "tsv", "parquet"),
}
"""Formats that each kind of task is read from."""

_SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_CALLED = frozenset({*_SUFFIXES, ".tsv", ".json", ".txt", ".conll"})


def is_called_a_file(path: Path) -> bool:
    """Whether a name ends as those of labeled files do, compressed or not."""
    return suffix_of(path) in _CALLED


def format_of(path: Path, kind: Kind, options: ReadOptions) -> Format:
    """Return the format of a file (or of a folder, for RACE).

    Raises:
        DataError: If there is no such file, or the kind of task is not read from that format.
    """
    check_exists(path)
    format = options.format or _guess(path, kind, options)
    if format not in FORMATS_OF[kind]:
        raise DataError(
            f"{path}: {kind} is not read from the format {format!r}",
            allowed=", ".join(FORMATS_OF[kind]),
            todo="Name the format if it was guessed wrongly, or the kind of task.",
        )
    return format


def _guess(path: Path, kind: Kind, options: ReadOptions) -> Format:
    if path.is_dir() and kind == "multiple_choice":
        return "race"
    suffix = suffix_of(path)
    if suffix == ".tsv" and kind in ("classification", "regression", "multi_label"):
        return "tsv"
    if suffix in _SUFFIXES and not (kind == "multiple_choice" and suffix in (".jsonl", ".ndjson")):
        return _SUFFIXES[suffix]
    loaded = load_text(path, options.encoding)
    if loaded.text.lstrip()[:1] in ("{", "["):
        return _json_format(loaded, kind)
    match kind:
        case "tagging":
            if options.labels == "ignored" and suffix == ".txt" and not _in_columns(loaded):
                return "text"
            return "conll"
        case "question_answering":
            return "tsv" if suffix == ".tsv" else "squad"
        case "multiple_choice":
            return "tsv" if suffix == ".tsv" else "race"
        case _:
            return "tsv" if suffix == ".tsv" or _has_tabs(loaded) else "text"


def _has_tabs(loaded: LoadedText) -> bool:
    lines = [line for line in lines_of(loaded.text)[:200] if line]
    return sum("\t" in line for line in lines) > len(lines) // 2


def _in_columns(loaded: LoadedText) -> bool:
    """Whether most lines are a word with its columns, or a blank line, rather than running text."""
    lines = [line.split() for line in lines_of(loaded.text)[:200]]
    counts = [len(line) for line in lines if line]
    return max(counts, default=0) <= 1 or (len(set(counts)) == 1 and len(counts) > 1 and counts[0] <= 5)


def _json_format(loaded: LoadedText, kind: Kind) -> Format:
    lines = is_json_lines(loaded.text)
    if kind not in ("question_answering", "multiple_choice"):
        return "jsonl" if lines else "json"
    if lines:
        first = next(line for line in lines_of(loaded.text) if line.strip())
        return "race" if kind == "multiple_choice" and '"questions"' in first else "jsonl"
    data = parse_json(loaded)
    items = data.get("data") if isinstance(data, dict) else data
    first = items[0] if isinstance(items, list) and items else data
    if kind == "question_answering":
        return "squad" if isinstance(first, dict) and ({"paragraphs", "qas"} & set(first)) else "json"
    if isinstance(first, list):
        return "dream"
    return "race" if isinstance(first, dict) and "questions" in first else "json"


_REASONS_SHOWN = 3


class Skips:
    """Collects the rows of one file that are left out.

    `bad_rows`: "refuse" raises on the first bad row.
    """

    def __init__(self, name: str, bad_rows: Literal["skip", "refuse"] = "skip") -> None:
        self.name = name
        self._refuse = bad_rows == "refuse"
        self._bad: list[Skipped] = []
        self._by_rule: list[Skipped] = []

    def add(self, place: str, reason: str) -> None:
        """Leave out a bad row.

        Raises:
            DataError: If bad rows are to refuse the file.
        """
        if self._refuse:
            raise DataError(f"{place}: {reason}", todo="Mend the row, or have bad rows skipped and counted.")
        self._bad.append(Skipped(place, reason))

    def add_by_rule(self, place: str, reason: str) -> None:
        """Leave out a row that is not bad, only not wanted."""
        self._by_rule.append(Skipped(place, reason))

    def finished(self, kept: int) -> tuple[Skipped, ...]:
        """Return all rows left out, once it is known how many were kept.

        Raises:
            DataError: If nothing was kept, or more rows are bad than good: then the file is something else.
        """
        if len(self._bad) > kept:
            raise DataError(
                f"{self.name}: {len(self._bad)} of {len(self._bad) + kept} rows cannot be read; {self._reasons()}",
                todo="Check that this is the right file, and the format, columns and quoting it was read with.",
            )
        if not kept:
            left = f" ({len(self._by_rule)} rows were left out: {self._by_rule[0].reason})" if self._by_rule else ""
            raise DataError(f"{self.name} holds no examples{left}", todo="Give a file with at least one example.")
        return (*self._bad, *self._by_rule)

    def _reasons(self) -> str:
        counts = Counter(skipped.reason for skipped in self._bad)
        first = {skipped.reason: skipped.place for skipped in reversed(self._bad)}
        shown = [
            f"{reason} ({counted(count, 'time')}, first at {first[reason]})"
            for reason, count in counts.most_common(_REASONS_SHOWN)
        ]
        return "; ".join(shown) + (
            f"; and {len(counts) - _REASONS_SHOWN} other reasons" if len(counts) > _REASONS_SHOWN else ""
        )
