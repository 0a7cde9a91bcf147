"""Opening corpus files, compressed or not, and describing bytes that are not UTF-8."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from maskwright.core.errors import DataError

COMPRESSIONS = (".gz", ".zst")
_READ_BYTES = 1 << 18


class _ZstandardFile(io.RawIOBase):
    """Reads concatenated Zstandard frames and, unlike the library's stream, notices when the last one is cut."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._fresh = True  # nothing of the current frame has been read
        self._waiting = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready:
            data = self._waiting or self._file.read(_READ_BYTES)
            self._waiting = b""
            if not data:
                if self._fresh:
                    return 0
                raise EOFError("the last Zstandard frame is incomplete")
            if self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = self._frame.decompress(data)
            self._fresh = self._frame.eof
            self._waiting = self._frame.unused_data if self._frame.eof else b""
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


@contextmanager
def reading(path: Path) -> Iterator[io.BufferedReader]:
    """Turn the errors of reading a file into a DataError: damaged, cut short, not permitted, gone."""
    try:
        with open(path, "rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        cut = isinstance(error, EOFError)
        raise DataError(
            f"{path} is {'cut short' if cut else 'damaged'}: {error}",
            todo="Copy or download it again, then run the same command once more.",
        ) from error
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}", todo="Check that it exists and that you may read it."
        ) from error


def decompressed(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    """Return the file's text as a binary stream, by its last suffix (`.gz`, `.zst` or neither)."""
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), buffer_size=_READ_BYTES)
    if path.suffix.lower() == ".zst":
        return io.BufferedReader(_ZstandardFile(file), buffer_size=_READ_BYTES)
    return file


_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LOOKED_AROUND = 1 << 14
_SKIP = "or leave such lines out with `--clean bad_lines=skip`"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be read.

    Attributes:
        place: "file, line 17".
        problem: What was found there.
        todo: How to mend it.
    """

    place: str
    problem: str
    todo: str = ""

    def error(self) -> DataError:
        """Return the refusal: the place, the problem, how to mend it, and how to skip it instead."""
        todo = f"{self.todo}, {_SKIP}." if self.todo else f"Mend it, {_SKIP}."
        return DataError(f"{self.place}: {self.problem}", todo=todo)


def refuse_utf_16(start: bytes, file: str) -> None:
    """Raise DataError if a file begins with a UTF-16 byte order mark: no line of it could be read."""
    if start.startswith(_UTF_16_MARKS):
        raise DataError(
            f"{file} is UTF-16 (it begins with the bytes {start[:2].hex(' ')})",
            allowed="UTF-8",
            todo="Convert it, e.g. `iconv -f UTF-16 -t UTF-8 OLD > NEW`",
        )


def undecodable(data: bytes, error: UnicodeDecodeError, file: str, line: int) -> BadLine:
    """Describe broken UTF-8 by file, line and byte, and guess what the encoding really is.

    Args:
        data: The bytes around the problem.
        error: What decoding `data` raised.
        file: Where the bytes came from.
        line: Line number of the problem, from 1.
    """
    column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
    before = data[max(0, error.start - _LOOKED_AROUND) : error.start]
    guess, codec = guess_encoding(before, data[error.start : error.start + _LOOKED_AROUND])
    found = data[error.start : error.start + 4].hex(" ")
    problem = f"not UTF-8 (bytes {found} at byte {column} of the line); {guess}"
    todo = f"Convert the file, e.g. `iconv -f {codec} -t UTF-8 OLD > NEW`" if codec else "Convert the file to UTF-8"
    return BadLine(f"{file}, line {line}", problem, todo)


def guess_encoding(before: bytes, data: bytes) -> tuple[str, str]:
    """Return what the encoding of `data` looks like, and its name for iconv and Python ("" if there is none).

    Args:
        data: Bytes from the first one that is not UTF-8; some thousands are enough.
    """
    if data.count(0) > len(data) // 5:
        return "it looks like UTF-16 without a byte order mark", "UTF-16LE"
    high = [byte >= 0x80 for byte in data]
    total = sum(high)
    in_pairs = sum(
        here and (left or right) for left, here, right in zip([False, *high], high, [*high[1:], False], strict=False)
    )
    around = before + data
    if around.decode("utf-8", errors="replace").count("\ufffd") < 0.1 * sum(byte >= 0x80 for byte in around):
        return "the text around it is UTF-8, so these bytes are damaged", ""
    if in_pairs < 0.7 * total:
        return "it looks like Latin-1 or Windows-1252", "WINDOWS-1252"
    # The 3755 most frequent hanzi of GB 2312 begin with B0-D7, its punctuation with A1-A3.
    common = sum(0xB0 <= byte <= 0xD7 or 0xA1 <= byte <= 0xA3 for byte in data if byte >= 0x80)
    for codec, name in (("gb18030", "GBK (GB18030)"), ("big5", "Big5"), ("shift_jis", "Shift-JIS")):
        if (codec != "gb18030" or common >= 0.5 * total) and _decodes(data, codec):
            return f"it looks like {name}", codec.upper().replace("_", "-")
    return "the encoding is not one that is recognized here", ""


def _decodes(data: bytes, codec: str) -> bool:
    try:
        # Not final: the end may be in the middle of a character.
        text = codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    # Nobody writes private characters; Big5's most frequent hanzi fall on GBK's.
    return not any("\ue000" <= character <= "\uf8ff" for character in text)
