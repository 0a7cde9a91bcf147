"""Labeled files before they are parsed: text, format, and the rows that are left out of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maskwright.core.errors import DataError, nearest
from maskwright.data.files import (
    COMPRESSIONS,
    START_BYTES,
    UTF_16_MARKS,
    BadLine,
    decompressed,
    reading,
    refuse_utf_16,
    undecodable,
)
from maskwright.data.tables import TABLE_SUFFIXES, Records
from maskwright.finetuning.examples import SkippedRow, summary_of
from maskwright.finetuning.readers.options import Format, Kind, ReadOptions


def check_exists(path: Path) -> None:
    """Raise DataError if there is nothing at `path`; the nearest name there is suggested."""
    if path.exists():
        return
    folder = path.parent
    guess = nearest(path.name, sorted(other.name for other in folder.iterdir()) if folder.is_dir() else [])
    hint = "Check the path." if folder.is_dir() else f"The folder {folder} does not exist either."
    raise DataError(f"no such file: {path}", hint=f"Did you mean '{folder / guess}'?" if guess else hint)


def load_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked."""
    check_exists(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", hint="Name the file.")
    with reading(path) as file:
        data = decompressed(file, path).read()
    if not data.strip():
        raise DataError(f"{path} is empty ({len(data)} bytes)", hint="Give a file with examples.")
    return data


def load_text(path: Path, encoding: str | None = None) -> str:
    """Return the text of a file without byte order mark. Without `encoding`: UTF-8, or UTF-16 with a mark.

    Line ends that are CR alone become line feeds.
    """
    data = load_bytes(path)
    if encoding is None and not data.startswith(UTF_16_MARKS):
        refuse_utf_16(data[:START_BYTES], str(path))
    codec = encoding or ("utf-16" if data.startswith(UTF_16_MARKS) else "utf-8")
    try:
        text = data.decode(codec).removeprefix("\ufeff")
        return text if "\n" in text else text.replace("\r", "\n")
    except LookupError as error:
        raise DataError(
            f"unknown encoding {encoding!r}", allowed="utf-8, gb18030, big5, cp1252, utf-16 and others of Python's"
        ) from error
    except UnicodeError as error:
        if codec != "utf-8" or not isinstance(error, UnicodeDecodeError):
            raise DataError(f"{path} is not {codec}: {error}", hint="Name its encoding.") from error
        bad = undecodable(data, error, str(path), data.count(b"\n", 0, error.start) + 1)
        hint = f"{bad.hint}, or name its encoding, `--read encoding=...`."
        raise DataError(f"{bad.location}: {bad.problem}", hint=hint) from error


def lines_of(text: str) -> list[str]:
    """Split a text at line feeds, with or without carriage return, and nowhere else.

    `str.splitlines` would also split at form feeds, U+0085 and U+2028, which occur inside sentences.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


_TABLES: tuple[Format, ...] = ("csv", "tsv", "json", "parquet")
_FORMATS: Mapping[str, tuple[Format, ...]] = {
    "tagging": ("conll", "json", "parquet", "text"),
    "question_answering": _TABLES,
    "multiple_choice": _TABLES,
}
"""Formats that kinds of tasks are read from; other kinds: tables, and one text per line."""


def format_of(path: Path | Records, kind: Kind, options: ReadOptions) -> Format:
    """Return the format of a file (or of RACE's folder), guessed by suffix and content; "json" for rows in memory."""
    if isinstance(path, Records):
        return "json"
    check_exists(path)
    format = options.format or _guess(path, kind, options)
    known = _FORMATS.get(kind, (*_TABLES, "text"))
    if format not in known:
        raise DataError(
            f"{path}: {kind} is not read from the format {format!r}",
            allowed=", ".join(known),
            hint="Name the format, `--read format=...`, if it was guessed wrongly, or the kind of task.",
        )
    return format


def _guess(path: Path, kind: Kind, options: ReadOptions) -> Format:
    if path.is_dir() and kind == "multiple_choice":
        return "json"
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()
    if suffix in TABLE_SUFFIXES and (kind, suffix) != ("tagging", ".tsv"):
        format = TABLE_SUFFIXES[suffix]
        return "json" if format == "jsonl" else format
    text = load_text(path, options.encoding)
    if text.lstrip()[:1] in ("{", "["):
        return "json"
    lines = [line for line in lines_of(text)[:200] if line.strip()]
    if kind == "tagging":
        # Running text to be tagged has lines of different numbers of words.
        widths = [len(line.split()) for line in lines]
        in_columns = max(widths, default=0) <= 1 or (len(set(widths)) == 1 and len(widths) > 1 and widths[0] <= 5)
        return "text" if options.labels == "ignored" and suffix == ".txt" and not in_columns else "conll"
    return "tsv" if options.delimiter or sum("\t" in line for line in lines) > len(lines) // 2 else "text"


@dataclass
class Skips:
    """The rows of one file that are left out."""

    name: str
    bad: list[SkippedRow] = field(default_factory=list)
    by_rule: list[SkippedRow] = field(default_factory=list)

    def add(self, location: str, reason: str) -> None:
        self.bad.append(SkippedRow(location, reason))

    def report(self, line: BadLine) -> None:
        self.add(line.location, line.problem)

    def finished(self, kept: int) -> tuple[SkippedRow, ...]:
        """Return all rows left out; DataError if no row was kept, or fewer than were bad."""
        if len(self.bad) > kept:
            raise DataError(
                f"{self.name}: {len(self.bad)} of {len(self.bad) + kept} rows cannot be read; {summary_of(self.bad)}",
                hint="Check that this is the right file, and the format, columns and quoting it was read with.",
            )
        if not kept:
            left = f" ({len(self.by_rule)} rows were left out: {self.by_rule[0].reason})" if self.by_rule else ""
            raise DataError(f"{self.name} holds no examples{left}", hint="Give a file with at least one example.")
        return (*self.bad, *self.by_rule)
