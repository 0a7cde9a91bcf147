"""Deduplication of documents and paragraphs in bounded memory, and the blocks without what is repeated.

Hashes are written to files by their remainder, so equal hashes are in one file: a file's repeats are found without the
others, in any process. What stays of all text is one byte for each document and paragraph, in memory-mapped files.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.randomness import SPLITMIX_STEP
from maskwright.core.storage.files import checksum
from maskwright.core.types import BoolArray
from maskwright.data.cleaning.block import BlockIndex, CleanedBlock, Counts, read_index, whole_file
from maskwright.data.cleaning.statistics import TextStatistics
from maskwright.data.engines import ordered_map

PARTITION_BYTES = 1 << 27
"""Bytes of the corpus files for each file of hashes. Finding its repeats takes about 60 bytes a hash."""
_MOST_PARTITIONS = 4096
_BUFFERED_ROWS = 1 << 21
_ROW = np.dtype([("hash", "<u8"), ("position", "<i8")])
_DOCUMENTS, _NEAR, _PARAGRAPHS, _DOCUMENT_ENDS = "documents", "near", "paragraphs", "document_ends"
# Added to the hashes of each band, so that hashes of different bands are never compared.


def repeated(hashes: NDArray[np.uint64]) -> BoolArray:
    """Return which hashes are equal to an earlier one; 0 never is. Shape (N,)."""
    again = np.ones(len(hashes), dtype=np.bool_)
    again[np.unique(hashes, return_index=True)[1]] = False
    again[hashes == 0] = False
    return again


class HashFiles:
    """Hashes with their positions, in files by the remainder of the hash; in each in the order in which they came."""

    def __init__(self, folder: Path, name: str, partitions: int) -> None:
        self.paths = [folder / f"{name}-{number:04d}.hashes" for number in range(partitions)]
        self._waiting: list[NDArray[Any]] = []
        self._rows = 0

    def add(self, hashes: NDArray[np.uint64], positions: NDArray[np.int64]) -> None:
        """Append hashes that are not 0. Shapes (N,)."""
        rows = np.empty(len(hashes), dtype=_ROW)
        rows["hash"], rows["position"] = hashes, positions
        self._waiting.append(rows[hashes != 0])
        self._rows += len(hashes)
        if self._rows >= _BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._rows = [], 0
        part = rows["hash"] % len(self.paths)
        rows = rows[np.argsort(part, kind="stable")]
        bounds = np.cumsum(np.bincount(part.astype(np.int64), minlength=len(self.paths)))
        for path, some in zip(self.paths, np.split(rows, bounds[:-1]), strict=True):
            if len(some):
                with open(path, "ab") as file:
                    file.write(some.tobytes())


class Duplicates:
    """Finds the repeated documents and paragraphs of a corpus: `add` its blocks in order, `find`, then `of_block`.

    Attributes:
        flags: After `find`: for each document ("documents", "near") and paragraph, whether it is a repeat.
    """

    def __init__(self, folder: Path, corpus_bytes: int) -> None:
        partitions = min(_MOST_PARTITIONS, 1 + corpus_bytes // PARTITION_BYTES)
        self._folder = folder
        self._files = {name: HashFiles(folder, name, partitions) for name in (_DOCUMENTS, _NEAR, _PARAGRAPHS)}
        # Documents and paragraphs before each block.
        self._before = [(0, 0)]
        self.flags: dict[str, BoolArray] = {}

    def add(self, block: CleanedBlock) -> None:
        documents, paragraphs = self._before[-1]
        lengths = block.lengths
        numbers = np.arange(documents, documents + len(lengths))
        self._files[_DOCUMENTS].add(block.document_hashes, numbers)
        for band, hashes in enumerate(block.band_hashes):
            salted = hashes + np.uint64(band * SPLITMIX_STEP % 2**64)
            self._files[_NEAR].add(salted, numbers)
        ends = paragraphs + np.cumsum(lengths)
        self._files[_PARAGRAPHS].add(block.paragraph_hashes, np.arange(paragraphs, paragraphs + lengths.sum()))
        with open(self._folder / _DOCUMENT_ENDS, "ab") as file:
            file.write(ends.astype("<i8").tobytes())
        self._before.append((documents + len(lengths), paragraphs + int(lengths.sum())))

    def find(self, workers: int | None) -> None:
        """Find the repeats, each file of hashes in a worker."""
        for files in self._files.values():
            files.flush()
        documents, paragraphs = self._before[-1]
        repeated_documents = self._mark(_DOCUMENTS, documents, repeats_in, workers)
        near = self._mark(_NEAR, documents, repeats_in, workers)
        near &= ~repeated_documents
        _written(near)
        self._mark(_PARAGRAPHS, paragraphs, partial(repeated_paragraphs_in, folder=self._folder), workers)

    def _mark(self, name: str, count: int, find: Callable[[Path], NDArray[np.int64]], workers: int | None) -> BoolArray:
        flags: BoolArray = np.lib.format.open_memmap(
            self._folder / f"{name}.npy", mode="w+", dtype=np.bool_, shape=(count,)
        )
        paths = [path for path in self._files[name].paths if path.exists()]
        for positions in ordered_map(find, paths, workers=workers):
            flags[positions] = True
        _written(flags)
        self.flags[name] = flags
        return flags

    def of_block(self, number: int) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return which documents, nearly repeated documents, and paragraphs of a block are repeats."""
        (first, start), (last, end) = self._before[number : number + 2]
        documents, near, paragraphs = (self.flags[name] for name in (_DOCUMENTS, _NEAR, _PARAGRAPHS))
        return np.array(documents[first:last]), np.array(near[first:last]), np.array(paragraphs[start:end])


def _written(flags: BoolArray) -> None:
    assert isinstance(flags, np.memmap)
    flags.flush()


def repeats_in(path: Path) -> NDArray[np.int64]:
    """Return the positions in a file of hashes whose hash comes before too."""
    return _repeats(np.fromfile(path, dtype=_ROW))


def repeated_paragraphs_in(path: Path, *, folder: Path) -> NDArray[np.int64]:
    """Return the same of paragraphs, of which those of dropped documents do not count."""
    rows = np.fromfile(path, dtype=_ROW)
    documents = np.searchsorted(np.memmap(folder / _DOCUMENT_ENDS, "<i8", "r"), rows["position"], side="right")
    dropped = np.zeros(len(rows), dtype=np.bool_)
    for name in (_DOCUMENTS, _NEAR):
        dropped |= np.load(folder / f"{name}.npy", mmap_mode="r")[documents]
    del documents
    return _repeats(rows[~dropped])


def _repeats(rows: NDArray[Any]) -> NDArray[np.int64]:
    return rows["position"][repeated(rows["hash"])]


STORED_BLOCK_BYTES = 1 << 22
_EXAMPLES = 3
_LONGEST_EXAMPLE = 300


def kept_ranges(
    index: BlockIndex,
    repeated_documents: BoolArray,
    near_repeats: BoolArray,
    repeated_paragraphs: BoolArray,
    min_document_bytes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Counts]:
    """Return starts and ends in a block's text, as `clean_block` wrote it, of what is no repeat, and the counts.

    The ranges are disjoint, unordered, and none is empty.

    Args:
        repeated_documents: Shape (D,), True where an earlier document is equal.
        near_repeats: Shape (D,), True where an earlier document is nearly equal, and none is equal.
        repeated_paragraphs: Shape (P,), True where an earlier paragraph is equal.
        min_document_bytes: Documents that shrink below this are removed.
    """
    lasts = np.cumsum(index.paragraphs)
    document = np.repeat(np.arange(len(lasts)), index.paragraphs)
    # A document's bytes are its paragraphs and a line break; its characters the paragraphs joined by one each.
    ends = np.cumsum(index.stored_bytes) + document
    starts = ends - index.stored_bytes

    def by_document(values: NDArray[Any]) -> NDArray[np.int64]:
        return np.diff(np.cumsum(values, dtype=np.int64)[lasts - 1], prepend=0)

    characters = by_document(index.characters) + index.paragraphs - 1
    shrunk = by_document(repeated_paragraphs) > 0
    remnants = shrunk & (by_document(index.text_bytes * ~repeated_paragraphs) < min_document_bytes)
    remnants &= ~(repeated_documents | near_repeats)
    stays = ~(repeated_documents | near_repeats | remnants)
    kept = np.flatnonzero(~repeated_paragraphs & stays[document])
    counts = Counts(
        repeated_documents=int(repeated_documents.sum()),
        repeated_document_characters=int(characters[repeated_documents].sum()),
        near_documents=int(near_repeats.sum()),
        near_document_characters=int(characters[near_repeats].sum()),
        repeated_paragraphs=int(index.paragraphs[stays].sum()) - len(kept),
        repeated_paragraph_characters=int((characters[stays] + 1).sum() - (index.characters[kept] + 1).sum()),
        remnants=int(remnants.sum()),
        remnant_characters=int(characters[remnants].sum()),
    )
    # The first paragraph of a document has no white space before it; a line break ends the document.
    is_first = np.diff(document[kept], prepend=-1) > 0
    had_space = kept > (lasts - index.paragraphs)[document[kept]]
    breaks = ends[lasts - 1][stays]
    begins = np.concatenate([starts[kept] + (is_first & had_space), breaks])
    return begins, np.concatenate([ends[kept], breaks + 1]), counts


def without_repeats(data: bytes, index: BlockIndex, *repeats: Any) -> tuple[bytes, Counts]:
    """Return a block's text in its `kept_ranges`, and the counts; the other arguments are those of `kept_ranges`."""
    starts, ends, counts = kept_ranges(index, *repeats)
    # Where a range begins at the end of another, both are one.
    ranges = np.setxor1d(starts, ends, assume_unique=True).reshape(-1, 2).tolist()
    return b"".join(data[start:end] for start, end in ranges), counts


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A stored block: consecutive blocks of one source, as `clean_block` numbered them, and what repeats in each."""

    name: str
    source: int
    parts: tuple[tuple[int, tuple[BoolArray, BoolArray, BoolArray]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlock:
    """Result of a worker for a block that it has written; without text, `checksum` is empty."""

    checksum: str
    counts: Counts
    statistics: TextStatistics
    examples: list[str]


def plan_blocks(
    sources: Iterable[int], folder: Path, duplicates: Duplicates, min_document_bytes: int
) -> Iterator[BlockPlan]:
    """Yield stored blocks of about 4 MB, each of one source; `sources` are those of the blocks in `folder`."""
    parts: list[tuple[int, tuple[BoolArray, BoolArray, BoolArray]]] = []
    named = size = current = 0

    def plan() -> BlockPlan:
        return BlockPlan(name=f"{named:05d}.txt" if size else "", source=current, parts=tuple(parts))

    for number, source in enumerate(sources):
        if source != current and parts:
            yield plan()
            named, size, parts = named + (size > 0), 0, []
        current = source
        parts.append((number, duplicates.of_block(number)))
        starts, ends, _ = kept_ranges(read_index(folder, number), *parts[-1][1], min_document_bytes)
        size += int((ends - starts).sum())
        if size >= STORED_BLOCK_BYTES:
            yield plan()
            named, size, parts = named + 1, 0, []
    if parts:
        yield plan()


def store_block(plan: BlockPlan, *, work: Path, folder: Path, min_document_bytes: int) -> StoredBlock:
    """Write a stored block to `folder` from the blocks in `work`; the same bytes if it is repeated."""
    counts, statistics, kept = Counts(), TextStatistics(), []
    for number, repeats in plan.parts:
        text = (work / f"{number:08d}.txt").read_bytes()
        text, dropped = without_repeats(text, read_index(work, number), *repeats, min_document_bytes)
        counts.add(dropped)
        kept.append(text)
    data = b"".join(kept)
    if not data:
        return StoredBlock(checksum="", counts=counts, statistics=statistics, examples=[])
    with whole_file(folder / plan.name, work) as file:
        file.write(data)
    statistics.count(data)
    return StoredBlock(checksum=checksum(data), counts=counts, statistics=statistics, examples=_examples(data))


def _examples(data: bytes) -> list[str]:
    examples: list[str] = []
    for number in range(1, _EXAMPLES + 1):
        before = data.rfind(b"\n\n", 0, len(data) * number // (_EXAMPLES + 1))
        start = before + 2 if before >= 0 else 0
        lines = data[start : data.find(b"\n\n", start)].decode().split("\n")
        sentence = max(lines[:40], key=lambda line: min(len(line), _LONGEST_EXAMPLE // 2)).strip()
        if sentence and sentence not in examples:
            examples.append(sentence if len(sentence) <= _LONGEST_EXAMPLE else sentence[:_LONGEST_EXAMPLE] + " ...")
    return examples
