"""Deduplication of documents and paragraphs in bounded memory, and the writer of the deduplicated blocks."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maskwright.core.files import checksum
from maskwright.data.cleaning.block import BlockIndex
from maskwright.data.cleaning.statistics import TextStatistics

HASHES_IN_MEMORY = 1 << 22


class DuplicateFinder:
    """Collects hashes in a file, then finds those that repeat an earlier one.

    The file is read once for each range of hash values that fits in memory, in order, so the first of equal hashes is
    kept.

    Args:
        path: The file, removed by the caller; the flags are written next to it.
        hashes_in_memory: Hashes per range and chunk (8 bytes each, about ten copies while sorting).
    """

    def __init__(self, path: Path, *, hashes_in_memory: int = HASHES_IN_MEMORY) -> None:
        self._path = path
        self._size = hashes_in_memory
        self._count = 0

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Append hashes; 0 stands for something that is never a duplicate. Shape (N,)."""
        with open(self._path, "ab") as file:
            file.write(hashes.astype("<u8").tobytes())
        self._count += len(hashes)

    def duplicates(self) -> NDArray[np.bool_]:
        """Return, for each hash added, whether an earlier one was equal. Shape (N,), memory-mapped."""
        if not self._count:
            return np.zeros(0, dtype=bool)
        flags = np.memmap(self._path.with_suffix(".duplicates"), dtype=np.bool_, mode="w+", shape=(self._count,))
        hashes = np.memmap(self._path, dtype="<u8", mode="r")
        num_ranges = -(-self._count // self._size)
        for number in range(num_ranges):
            seen = np.zeros(0, dtype=np.uint64)
            for start in range(0, self._count, self._size):
                chunk = np.asarray(hashes[start : start + self._size])
                # Hashes are uniform over 64 bits: their high 32 bits, scaled, give the range.
                ranges = ((chunk >> np.uint64(32)) * np.uint64(num_ranges)) >> np.uint64(32)
                here = np.flatnonzero((ranges == number) & (chunk != 0))
                repeated, seen = _repeated(chunk[here], seen)
                flags[start + here[repeated]] = True
        flags.flush()
        return flags


def _repeated(hashes: NDArray[np.uint64], seen: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Return which hashes repeat an earlier or a seen one, and all seen ones now. `seen` ascends."""
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


STORED_BLOCK_BYTES = 1 << 22
_EXAMPLES = 3
_LONGEST_EXAMPLE = 300


@dataclass(slots=True)
class Repeats:
    """Text of one source that was dropped as a duplicate of earlier text, or because too little was left.

    Attributes:
        documents, document_characters: Documents that equal an earlier one.
        paragraphs, paragraph_characters: Paragraphs of other documents that equal an earlier one.
        remnants, remnant_characters: Documents too short without their repeated paragraphs (counted with them).
    """

    documents: int = 0
    document_characters: int = 0
    paragraphs: int = 0
    paragraph_characters: int = 0
    remnants: int = 0
    remnant_characters: int = 0

    def add(self, other: "Repeats") -> None:
        """Add other counts to these."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


class Remaining(NamedTuple):
    """The rest of a block: its stored text, what was removed, and which of its P paragraphs are kept. Shape (P,)."""

    data: bytes
    repeats: Repeats
    kept: NDArray[np.bool_]


def without_repeats(
    data: bytes,
    index: BlockIndex,
    repeated_documents: NDArray[np.bool_],
    repeated_paragraphs: NDArray[np.bool_],
    min_document_bytes: int,
) -> Remaining:
    """Remove repeated documents and paragraphs from a block's text, as `clean_block` wrote it.

    Args:
        repeated_documents: Shape (D,), True where an earlier document is equal.
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
    counts = Repeats(
        documents=int(repeated_documents.sum()), document_characters=int(characters[repeated_documents].sum())
    )
    left = np.ones(len(index.characters), dtype=np.bool_)
    parts: list[bytes] = []
    copied = 0
    for document in np.flatnonzero(repeated_documents | touched):
        first, last = int(firsts[document]), int(lasts[document])
        parts.append(data[copied : starts[first]])
        copied = int(ends[last - 1]) + 1
        left[first:last] = False
        if repeated_documents[document]:
            continue
        kept = first + np.flatnonzero(~repeated_paragraphs[first:last])
        if int(index.text_bytes[kept].sum()) < min_document_bytes:
            counts.remnants += 1
            counts.remnant_characters += int(characters[document])
            continue
        left[kept] = True
        counts.paragraphs += last - first - len(kept)
        counts.paragraph_characters += int(characters[document] - index.characters[kept].sum()) - len(kept) + 1
        text = b"".join(data[starts[paragraph] : ends[paragraph]] for paragraph in kept)
        # The first paragraph of a document has no white space before it.
        parts.append(text.removeprefix(b" "))
        parts.append(b"\n")
    parts.append(data[copied:])
    return Remaining(b"".join(parts), counts, left)


def stored_spans(index: BlockIndex, kept: NDArray[np.bool_]) -> tuple[NDArray[np.int64], int]:
    """Return the given spans of the kept paragraphs (shape (P,)), and the number of characters of these.

    Spans have shape (N, 3): start, end (characters of all sentences of the block, joined) and number of the kind.
    """
    documents = np.repeat(np.arange(len(index.paragraphs)), index.paragraphs)
    left = np.flatnonzero(kept)
    # Every paragraph of a document but the first has the white space before it.
    spaced = np.diff(documents[left], prepend=-1) == 0
    lengths = index.characters[left] + spaced
    starts = np.zeros(len(kept), dtype=np.int64)
    starts[left] = np.cumsum(lengths) - lengths + spaced
    spans = index.spans[kept[index.spans[:, 0]]]
    return np.stack([*(starts[spans[:, 0]] + spans[:, column] for column in (1, 2)), spans[:, 3]], axis=1), int(
        lengths.sum()
    )


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One file of the store, with the checksums of its text and its given spans ("" without any)."""

    name: str
    source: int
    documents: int
    sentences: int
    text_checksum: str
    spans_checksum: str


_NO_SPANS = np.zeros((0, 3), dtype=np.int64)


def spans_file(block: Path) -> Path:
    """Return where the given spans of a block's file are."""
    return block.with_suffix(".spans.npy")


class BlockWriter:
    """Writes text to files of about 4 MB, each of one source, and counts it; with each file's given spans if wanted."""

    def __init__(self, folder: Path, num_sources: int, *, with_spans: bool = False) -> None:
        self.blocks: list[StoredBlock] = []
        self.statistics = [TextStatistics() for _ in range(num_sources)]
        self.examples: list[list[str]] = [[] for _ in range(num_sources)]
        self._folder = folder
        self._parts: list[bytes] = []
        self._size = 0
        self._source = 0
        self._with_spans = with_spans
        self._spans: list[NDArray[np.int64]] = []
        self._characters = 0

    def add(self, source: int, data: bytes, spans: NDArray[np.int64] = _NO_SPANS, characters: int = 0) -> None:
        """Append whole documents of a source; sources come one after the other, spans as from `stored_spans`."""
        if source != self._source:
            self.flush()
            self._source = source
        if data:
            self._parts.append(data)
            self._size += len(data)
            self._spans.append(spans + np.array([self._characters, self._characters, 0]))
            self._characters += characters
        if self._size >= STORED_BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected text as a block."""
        if not self._size:
            return
        data = b"".join(self._parts)
        self._parts, self._size = [], 0
        name = f"{len(self.blocks):05d}.txt"
        self._folder.mkdir(exist_ok=True)
        path, checksums = self._folder / name, ["", ""]
        path.write_bytes(data)
        checksums[0] = checksum(path)
        if self._with_spans:
            np.save(spans_file(path), np.concatenate(self._spans))
            checksums[1] = checksum(spans_file(path))
            self._spans, self._characters = [], 0
        counted = TextStatistics()
        counted.add(data)
        self.statistics[self._source].merge(counted)
        self.blocks.append(StoredBlock(name, self._source, counted.documents, counted.sentences, *checksums))
        if not self.examples[self._source]:
            self.examples[self._source] = _examples(data)


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
