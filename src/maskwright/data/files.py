"""Opening of corpus files, compressed or not, in bounded memory, and description of bytes that are not UTF-8."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.core.errors import DataError
from maskwright.core.extras import imported
from maskwright.core.storage.files import open_file

COMPRESSIONS = (".gz", ".zst")
MAX_LINE_BYTES = 1 << 24
"""Longest line of a table or of JSON Lines, and so the longest document there. Text files have no such limit."""
MAX_RATIO = 100
"""Times its own size that a compressed file may unpack to; `_ALWAYS_UNPACKED` is allowed in any case."""
_ALWAYS_UNPACKED = 1 << 26
_READ_BYTES = 1 << 18


@contextmanager
def reading(path: Path, name: str = "") -> Iterator[BinaryIO]:
    """Open a regular file; turn errors of reading it into a DataError: damaged, truncated, not permitted, missing.

    Args:
        name: Of the file in errors; "" for its path.
    """
    name = name or str(path)
    try:
        with open_file(path) as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
        # pyarrow raises OSError without a number.
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno is not None:
            raise DataError(
                f"cannot read {name}: {error.strerror or error}", hint="Check that it exists and that you may read it."
            ) from error
        truncated = isinstance(error, EOFError) or "Truncated" in str(error)
        raise DataError(
            f"{name} is {'truncated' if truncated else 'damaged'}: {error}",
            hint="Copy or download it again, then run the same command once more.",
        ) from error


def decompressed(file: BinaryIO, path: Path) -> io.BufferedReader:
    """Return the file's text as a binary stream, by its last suffix (`.gz`, `.zst` or neither).

    Reading raises DataError where a file unpacks to more than `MAX_RATIO` times its size.
    """
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(
            _DecompressedFile(gzip.GzipFile(fileobj=file, mode="rb"), path), buffer_size=_READ_BYTES
        )
    if path.suffix.lower() == ".zst":
        pyarrow = imported("pyarrow", f"reading {path}", "parquet")
        return io.BufferedReader(
            _DecompressedFile(pyarrow.CompressedInputStream(file, "zstd"), path), buffer_size=_READ_BYTES
        )
    assert isinstance(file, io.BufferedReader)
    return file


class _DecompressedFile(io.RawIOBase):
    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path
        self._left = max(_ALWAYS_UNPACKED, MAX_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._path} unpacks to more than {MAX_RATIO} times its {self._path.stat().st_size:,} bytes",
                hint="If this is no mistake, unpack it and give the unpacked file.",
            )
        buffer[: len(data)] = data
        return len(data)


UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
START_BYTES = 1 << 12
"""Bytes of a file by which `refuse_utf_16` recognizes its encoding."""
_LOOKED_AROUND = 1 << 14
_SKIP = "or leave such lines out with `--clean bad_lines=skip`"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be read: its location ("file, line 17"), the problem, and how to correct it."""

    location: str
    problem: str
    hint: str = ""

    def error(self) -> DataError:
        """Return the error for this line, which states how to skip it instead."""
        hint = f"{self.hint}, {_SKIP}." if self.hint else f"Correct it, {_SKIP}."
        return DataError(f"{self.location}: {self.problem}", hint=hint)


OnBadLine = Callable[[BadLine], None]


def refuse_line(bad: BadLine) -> None:
    """Raise the error for a line that cannot be skipped."""
    raise DataError(f"{bad.location}: {bad.problem}", hint=f"{bad.hint or 'Correct it'}.")


def lines_in(stream: BinaryIO, name: str, on_bad_line: OnBadLine = refuse_line) -> Iterator[bytes]:
    """Yield the lines of a file; one longer than `MAX_LINE_BYTES` is reported, then read as an empty one.

    Raises DataError if the first line is UTF-16.
    """
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            refuse_utf_16(line[:START_BYTES], name)
        if len(line) > MAX_LINE_BYTES:
            skip_long_line(stream, name, number, on_bad_line)
            line = b"\n"
        if number == 1 and not line.endswith(b"\n"):
            yield from line.splitlines(keepends=True)  # The whole file: its line ends may be CR alone.
        else:
            yield line


def decoded_lines(stream: BinaryIO, name: str, on_bad_line: OnBadLine = refuse_line) -> Iterator[str]:
    """Yield the lines of a file that are UTF-8; report the others."""
    for number, line in enumerate(lines_in(stream, name, on_bad_line), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            on_bad_line(undecodable(line, error, name, number))


def decode_lines(data: bytes, file: str, first_line: int = 1, on_bad_line: OnBadLine = refuse_line) -> str:
    """Decode UTF-8; where it is broken, report the line and, if that returns, leave the whole line out."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines = []
    start = 0
    for number, line in enumerate(io.BytesIO(data), first_line):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            whole = UnicodeDecodeError("utf-8", data, start + error.start, start + error.end, error.reason)
            on_bad_line(undecodable(data, whole, file, number))
        start += len(line)
    return "".join(lines)


def skip_long_line(stream: BinaryIO, name: str, number: int, on_bad_line: OnBadLine) -> None:
    """Report a line longer than `MAX_LINE_BYTES`, of which the beginning was read, and skip the rest of it."""
    hint = "Check that the file is what its name says, or divide its documents"
    on_bad_line(BadLine(f"{name}, line {number}", f"longer than {MAX_LINE_BYTES:,} bytes", hint))
    while (rest := stream.readline(_READ_BYTES)) and not rest.endswith(b"\n"):
        pass


def refuse_utf_16(start: bytes, file: str) -> None:
    """Raise DataError if the start of a file, some thousand bytes, is UTF-16, with or without a byte order mark.

    Its NUL bytes are valid UTF-8: without a mark, English would be read as words with NULs between all letters.
    """
    if start.startswith(UTF_16_MARKS):
        evidence, codec = f"it begins with the bytes {start[:2].hex(' ')}", "UTF-16"
    elif _has_many_nulls(start):
        evidence = f"{start.count(0) / len(start):.0%} of its first bytes are NUL"
        codec = "UTF-16LE" if start[1::2].count(0) >= start[::2].count(0) else "UTF-16BE"
    else:
        return
    raise DataError(
        f"{file} is {'' if codec == 'UTF-16' else 'probably '}UTF-16 ({evidence})",
        allowed="UTF-8",
        hint=f"Convert it, e.g. `iconv -f {codec} -t UTF-8 OLD > NEW`",
    )


def _has_many_nulls(data: bytes) -> bool:
    return data.count(0) > len(data) // 5


def undecodable(data: bytes, error: UnicodeDecodeError, file: str, line: int) -> BadLine:
    """Describe broken UTF-8 (the error of decoding `data`) by file, line and byte, and guess the encoding."""
    column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
    before = data[max(0, error.start - _LOOKED_AROUND) : error.start]
    guess, codec = guess_encoding(before, data[error.start : error.start + _LOOKED_AROUND])
    start = data[error.start : error.start + 4].hex(" ")
    problem = f"not UTF-8 (bytes {start} at byte {column} of the line); {guess}"
    hint = f"Convert the file, e.g. `iconv -f {codec} -t UTF-8 OLD > NEW`" if codec else "Convert the file to UTF-8"
    return BadLine(f"{file}, line {line}", problem, hint)


def guess_encoding(before: bytes, data: bytes) -> tuple[str, str]:
    """Return a guess of the encoding in words, and its name for iconv and Python ("" if unknown).

    `before` and `data` are some thousand bytes before and from the first one that is not UTF-8.
    """
    if _has_many_nulls(data):
        return "it looks like UTF-16 without a byte order mark", "UTF-16LE"
    around = before + data
    if around.decode("utf-8", errors="replace").count("\ufffd") < 0.1 * _count(rb"[\x80-\xff]", around):
        return "the text around it is UTF-8, so these bytes are damaged", ""
    high, in_pairs = _count(rb"[\x80-\xff]", data), _count(rb"[\x80-\xff]{2,}", data)
    if in_pairs < 0.7 * high:
        return "it looks like Latin-1 or Windows-1252", "WINDOWS-1252"
    # The 3755 most frequent hanzi of GB 2312 begin with B0-D7, its punctuation with A1-A3.
    common = _count(rb"[\xa1-\xa3\xb0-\xd7]", data)
    for codec, name in (("gb18030", "GBK (GB18030)"), ("big5", "Big5"), ("shift_jis", "Shift-JIS")):
        if (codec != "gb18030" or common >= 0.5 * high) and _decodes(data, codec):
            return f"it looks like {name}", codec.upper().replace("_", "-")
    return "the encoding is not one that is recognized here", ""


def _count(pattern: bytes, data: bytes) -> int:
    """Return how many bytes match a pattern."""
    return sum(map(len, re.findall(pattern, data)))


def _decodes(data: bytes, codec: str) -> bool:
    try:
        # Incremental: the end may be in the middle of a character.
        text = codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    # Private-use characters do not occur; Big5's most frequent hanzi decode to them in GBK.
    return not any("\ue000" <= character <= "\uf8ff" for character in text)
