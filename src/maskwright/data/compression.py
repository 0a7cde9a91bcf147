"""Open a corpus file, compressed or not, as a stream of bytes; damage is an error that names the file."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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
