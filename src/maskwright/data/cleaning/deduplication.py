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
from maskwright.data.cleaning.block import BlockIndex, CleanedBlock, Counts, read_index, read_text, whole_file
from maskwright.data.cleaning.statistics import TextStatistics
from maskwright.data.engines import ordered_map

PARTITION_BYTES = 1 << 29
"""Bytes of the corpus files for each file of hashes. Finding its repeats takes about 60 bytes a hash."""
_MOST_PARTITIONS = 1024
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
        """Write what is in memory."""
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
        """Append a block's hashes."""
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
    positions: NDArray[np.int64] = rows["position"][repeated(rows["hash"])]
    return positions


STORED_BLOCK_BYTES = 1 << 22
_EXAMPLES = 3
_LONGEST_EXAMPLE = 300


def kept_ranges(
    index: BlockIndex,
    repeated_documents: BoolArray,
    near_repeats: BoolArray,
    repeated_paragraphs: BoolArray,
    min_document_bytes: int,
) -> tuple[list[tuple[int, int]], Counts]:
    """Return the ranges of a block's text, as `clean_block` wrote it, without repeated documents and paragraphs.

    Their counts are the second result.

    Args:
        repeated_documents: Shape (D,), True where an earlier document is equal.
        near_repeats: Shape (D,), True where an earlier document is nearly equal, and none is equal.
        repeated_paragraphs: Shape (P,), True where an earlier paragraph is equal.
        min_document_bytes: Documents that shrink below this are removed.
    """
    lasts = np.cumsum(index.paragraphs)
    firsts = lasts - index.paragraphs
    # A document's bytes are its paragraphs and a line break; its characters the paragraphs joined by one each.
    ends = np.cumsum(index.stored_bytes) + np.repeat(np.arange(len(firsts)), index.paragraphs)
    starts = ends - index.stored_bytes
    characters = np.add.reduceat(index.characters, firsts) + index.paragraphs - 1 if len(firsts) else firsts
    touched = np.add.reduceat(repeated_paragraphs, firsts, dtype=np.int64) > 0 if len(firsts) else firsts > 0
    counts = Counts(
        repeated_documents=int(repeated_documents.sum()),
        repeated_document_characters=int(characters[repeated_documents].sum()),
        near_documents=int(near_repeats.sum()),
        near_document_characters=int(characters[near_repeats].sum()),
    )
    dropped = repeated_documents | near_repeats
    ranges: list[tuple[int, int]] = []
    copied = 0
    for document in np.flatnonzero(dropped | touched):
        first, last = int(firsts[document]), int(lasts[document])
        ranges.append((copied, int(starts[first])))
        copied = int(ends[last - 1]) + 1
        if dropped[document]:
            continue
        kept = first + np.flatnonzero(~repeated_paragraphs[first:last])
        if int(index.text_bytes[kept].sum()) < min_document_bytes:
            counts.remnants += 1
            counts.remnant_characters += int(characters[document])
            continue
        counts.repeated_paragraphs += last - first - len(kept)
        gone = int(characters[document] - index.characters[kept].sum()) - len(kept) + 1
        counts.repeated_paragraph_characters += gone
        # The first paragraph of a document has no white space before it; a line break ends the document.
        begins = starts[kept] + ((kept > first) & (kept == kept[0]))
        ranges += zip(begins.tolist(), ends[kept].tolist(), strict=True)
        ranges.append((copied - 1, copied))
    size = int(ends[-1]) + 1 if len(ends) else 0
    ranges.append((copied, size))
    return ranges, counts


def without_repeats(data: bytes, index: BlockIndex, *repeats: Any) -> tuple[bytes, Counts]:
    """Return a block's text in its `kept_ranges`, and the counts; the other arguments are those of `kept_ranges`."""
    ranges, counts = kept_ranges(index, *repeats)
    return b"".join(data[start:end] for start, end in ranges), counts


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """A stored block: consecutive blocks of one source, as `clean_block` numbered them, and what repeats in each."""

    name: str
    source: int
    parts: tuple[tuple[int, tuple[BoolArray, BoolArray, BoolArray]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlock:
    """What a worker returns of a block that it has written; without text, `checksum` is empty."""

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
        ranges, _ = kept_ranges(read_index(folder, number), *parts[-1][1], min_document_bytes)
        size += sum(end - start for start, end in ranges)
        if size >= STORED_BLOCK_BYTES:
            yield plan()
            named, size, parts = named + 1, 0, []
    if parts:
        yield plan()


def store_block(plan: BlockPlan, *, work: Path, folder: Path, min_document_bytes: int) -> StoredBlock:
    """Write a stored block to `folder` from the blocks in `work`; the same bytes if it is repeated."""
    counts, statistics, kept = Counts(), TextStatistics(), []
    for number, repeats in plan.parts:
        text, dropped = without_repeats(read_text(work, number), read_index(work, number), *repeats, min_document_bytes)
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
