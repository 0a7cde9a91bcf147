"""A labelled file as text, whole: found, unpacked, decoded. What was guessed about its encoding is said."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from maskwright.core.errors import DataError, nearest
from maskwright.data.sources.files import COMPRESSIONS, decompressed, guess_encoding, reading, undecodable

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
        raise DataError(f"{name} looks like UTF-16 without a byte order mark", todo=_name_encoding("utf-16-le"))
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


def _name_encoding(encoding: str) -> str:
    return f"Name its encoding, e.g. {encoding}, or convert it to UTF-8."


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
