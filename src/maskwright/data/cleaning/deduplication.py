"""Deduplication of documents and paragraphs, and the writer of the deduplicated blocks."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.files import checksum
from maskwright.core.types import BoolArray
from maskwright.data.cleaning.block import BlockIndex, Counts
from maskwright.data.cleaning.statistics import TextStatistics

_PARTS = 16


def repeated(hashes: NDArray[np.uint64]) -> BoolArray:
    """Return which hashes are equal to an earlier one; 0 never is. Shape (N,).

    Takes at most 9 bytes for each hash besides the hash.
    """
    found = np.zeros(len(hashes), dtype=np.bool_)
    parts = (hashes % _PARTS).astype(np.uint8)
    parts[hashes == 0] = _PARTS
    for part in range(_PARTS):
        places = np.flatnonzero(parts == part)
        again = np.ones(len(places), dtype=np.bool_)
        again[np.unique(hashes[places], return_index=True)[1]] = False
        found[places[again]] = True
    return found


STORED_BLOCK_BYTES = 1 << 22
_EXAMPLES = 3
_LONGEST_EXAMPLE = 300


def without_repeats(
    data: bytes,
    index: BlockIndex,
    repeated_documents: BoolArray,
    near_repeats: BoolArray,
    repeated_paragraphs: BoolArray,
    min_document_bytes: int,
) -> tuple[bytes, Counts]:
    """Return a block's text, as `clean_block` wrote it, without repeated documents and paragraphs; and their counts.

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
    parts: list[bytes] = []
    copied = 0
    for document in np.flatnonzero(dropped | touched):
        first, last = int(firsts[document]), int(lasts[document])
        parts.append(data[copied : starts[first]])
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
        text = b"".join(data[starts[paragraph] : ends[paragraph]] for paragraph in kept)
        # The first paragraph of a document has no white space before it.
        parts.append(text.removeprefix(b" "))
        parts.append(b"\n")
    parts.append(data[copied:])
    return b"".join(parts), counts


class BlockWriter:
    """Writes text to files of about 4 MB, each of one source, and counts it.

    Attributes:
        blocks: Name, number of the source and checksum of each file.
    """

    def __init__(self, folder: Path, num_sources: int) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.statistics = [TextStatistics() for _ in range(num_sources)]
        self.examples: list[list[str]] = [[] for _ in range(num_sources)]
        self._folder = folder
        self._waiting = bytearray()
        self._source = 0

    def add(self, source: int, data: bytes) -> None:
        """Append whole documents of a source; sources come one after the other."""
        if source != self._source:
            self.flush()
            self._source = source
        self._waiting += data
        if len(self._waiting) >= STORED_BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected text as a block."""
        if not self._waiting:
            return
        data = bytes(self._waiting)
        self._waiting.clear()
        name = f"{len(self.blocks):05d}.txt"
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).write_bytes(data)
        self.blocks.append({"name": name, "source": self._source, "text_checksum": checksum(data)})
        self.statistics[self._source].count(data)
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
