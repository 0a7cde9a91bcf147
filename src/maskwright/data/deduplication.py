"""Which documents and paragraphs have stood earlier in the corpus, found in bounded memory.

Hashes are appended to a file as the text is read. At the end they are dealt out into ranges small enough for
memory, and each range is searched in order: of equal hashes the first is kept. What is in memory at any time is
one range's different hashes and one chunk of records, whatever the size of the corpus and however often a text
repeats.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RECORDS_IN_MEMORY = 1 << 20
_RECORD = np.dtype([("hash", np.uint64), ("position", np.int64)])


class DuplicateFinder:
    """Collects hashes in order, then says which of them repeat an earlier one.

    Args:
        folder: An empty or absent folder for working files; the caller removes it.
        records_in_memory: Hashes handled at a time (16 bytes each, about five copies while sorting).
    """

    def __init__(self, folder: Path, *, records_in_memory: int = RECORDS_IN_MEMORY) -> None:
        self._folder = folder
        self._records_in_memory = records_in_memory
        self._count = 0

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Append hashes; 0 stands for something that is never a duplicate. Shape (N,)."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "hashes", "ab") as file:
            file.write(hashes.astype("<u8").tobytes())
        self._count += len(hashes)

    def duplicates(self) -> NDArray[np.bool_]:
        """Return, for each hash added, whether an earlier one was equal. Shape (N,), kept in a file."""
        if not self._count:
            return np.zeros(0, dtype=bool)
        flags = np.memmap(self._folder / "duplicates", dtype=np.bool_, mode="w+", shape=(self._count,))
        for chunks in self._ranges():
            seen = np.zeros(0, dtype=np.uint64)
            for records in chunks:
                repeated, seen = _repeated(records["hash"], seen)
                flags[records["position"][repeated]] = True
        flags.flush()
        return flags

    def _ranges(self) -> Iterator[Iterator[NDArray[np.void]]]:
        num_ranges = -(-self._count // self._records_in_memory)
        if num_ranges == 1:
            yield self._chunks()
            return
        for records in self._chunks():
            # Hashes are even over 64 bits: their high 32 bits, scaled, number the range.
            number = ((records["hash"] >> np.uint64(32)) * np.uint64(num_ranges)) >> np.uint64(32)
            order = np.argsort(number, kind="stable")
            ends = np.searchsorted(number[order], np.arange(num_ranges), side="right")
            for range_number, part in enumerate(np.split(records[order], ends[:-1])):
                if len(part):
                    with open(self._range_file(range_number), "ab") as file:
                        file.write(part.tobytes())
        for range_number in range(num_ranges):
            path = self._range_file(range_number)
            if path.exists():
                yield self._stored(path)
                path.unlink()

    def _range_file(self, number: int) -> Path:
        return self._folder / f"range-{number}"

    def _chunks(self) -> Iterator[NDArray[np.void]]:
        position = 0
        with open(self._folder / "hashes", "rb") as file:
            while data := file.read(8 * self._records_in_memory):
                hashes = np.frombuffer(data, dtype="<u8")
                records = np.empty(len(hashes), dtype=_RECORD)
                records["hash"] = hashes
                records["position"] = np.arange(position, position + len(hashes))
                position += len(hashes)
                yield records[hashes != 0]

    def _stored(self, path: Path) -> Iterator[NDArray[np.void]]:
        with open(path, "rb") as file:
            while data := file.read(_RECORD.itemsize * self._records_in_memory):
                yield np.frombuffer(data, dtype=_RECORD)


def _repeated(hashes: NDArray[np.uint64], seen: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    # `seen` is sorted; so is what is returned in its place.
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    again = np.zeros(len(ordered), dtype=bool)
    again[1:] = ordered[1:] == ordered[:-1]
    if len(seen):
        place = np.minimum(np.searchsorted(seen, ordered), len(seen) - 1)
        again |= seen[place] == ordered
    repeated = np.empty(len(hashes), dtype=bool)
    repeated[order] = again
    return repeated, np.sort(np.concatenate([seen, ordered[~again]]))
