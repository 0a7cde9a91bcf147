"""Memory-mapped arrays whose blocks are compared with checksums when they are first read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import hash_64
from maskwright.core.storage.checksums import damaged_file_error

_BLOCK = 1 << 16


def block_checksums(path: Path) -> NDArray[np.uint64]:
    """Return the checksum of each block of 64 KiB of a file."""
    with open(path, "rb") as file:
        blocks = iter(lambda: file.read(_BLOCK), b"")
        return np.fromiter(map(hash_64, blocks), dtype=np.uint64)


class CheckedArray:
    """A memory-mapped one-dimensional .npy file; each block is compared with its checksum before it is first read.

    A shard of a large corpus is thus never read whole for its checksum.

    Raises OSError, EOFError or ValueError if it cannot be read.
    """

    def __init__(self, path: Path, checksums: NDArray[np.uint64]) -> None:
        # Indexing a plain array over the map is several times faster than numpy's memmap class.
        self.values: NDArray[Any] = np.asarray(np.load(path, mmap_mode="r"))
        self._path, self._checksums = path, checksums
        self._bytes = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        self._first = len(self._bytes) - self.values.nbytes
        self._unread = np.ones(-(-len(self._bytes) // _BLOCK), dtype=np.bool_)
        if len(checksums) != len(self._unread):
            raise ValueError(f"{path.name} has {len(self._bytes):,} bytes, not as many as were written")
        self._compare([0])  # with the header

    def compare(self, starts: NDArray[Any], ends: NDArray[Any]) -> None:
        """Compare the blocks of ranges [start, end) of elements, none empty. Shapes (K,).

        Raises DataError if a block is damaged.
        """
        size = self.values.itemsize
        first = (self._first + starts * size) // _BLOCK
        last = (self._first + ends * size - 1) // _BLOCK
        blocks = concatenated_ranges(first, last - first + 1)
        blocks = blocks[self._unread[blocks]]
        if len(blocks):
            self._compare(np.unique(blocks).tolist())

    def _compare(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            start = block * _BLOCK
            if hash_64(self._bytes[start : start + _BLOCK].data) != self._checksums[block]:
                raise damaged_file_error(self._path, f"the {_BLOCK:,} bytes at {start:,} are damaged")
            self._unread[block] = False
