"""Cleaning of one block of raw text in a worker process.

Besides the sentences it writes an index (lengths and hashes of paragraphs and documents), so that duplicates of other
blocks can be removed without parsing the text again.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.data.cleaning.sentences import sentences_of
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.sources.files import BadLine
from maskwright.data.sources.parsing import OnBadLine, documents_of
from maskwright.data.sources.readers import MAX_DOCUMENT_BYTES, RawBlock

_PLACES_KEPT = 5


@dataclass(slots=True)
class Counts:
    """Counts of what was read and dropped. Parts of a cut document count as documents.

    Attributes:
        documents, paragraphs, characters: As read.
        removed_characters: Removed by cleaning (control characters, repeated white space) less those added.
        short_documents, short_characters: Dropped because they are short; clean characters.
        longest_document: Bytes of clean text of the longest document.
        bad_lines: Lines (or rows) skipped.
        bad_places: The first few of them, with the problem.
    """

    documents: int = 0
    paragraphs: int = 0
    characters: int = 0
    removed_characters: int = 0
    short_documents: int = 0
    short_characters: int = 0
    longest_document: int = 0
    bad_lines: int = 0
    bad_places: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Add another block's counts to these."""
        for item in fields(self):
            own, more = getattr(self, item.name), getattr(other, item.name)
            setattr(self, item.name, max(own, more) if item.name == "longest_document" else own + more)
        del self.bad_places[_PLACES_KEPT:]

    def skip(self, bad: BadLine) -> None:
        """Count a skipped line."""
        self.bad_lines += 1
        if len(self.bad_places) < _PLACES_KEPT:
            self.bad_places.append(f"{bad.place}: {bad.problem}")


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The paragraphs and documents of a block after cleaning.

    Attributes:
        paragraphs: Shape (D,), paragraphs of each document.
        stored_bytes: Shape (P,), bytes of each paragraph's sentence lines, with line ends.
        characters: Shape (P,).
        text_bytes: Shape (P,), bytes of each paragraph's text.
    """

    paragraphs: NDArray[np.int64]
    stored_bytes: NDArray[np.int64]
    characters: NDArray[np.int64]
    text_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CleanedBlock:
    """What a worker returns of a block of P paragraphs and D documents; the rest is on disk.

    Attributes:
        paragraph_hashes: Shape (P,); 0 for paragraphs that are never duplicates.
        document_hashes: Shape (D,); 0 where documents are not compared.
    """

    source: int
    paragraph_hashes: NDArray[np.uint64]
    document_hashes: NDArray[np.uint64]
    bytes_read: int
    counts: Counts


def clean_block(numbered: tuple[int, RawBlock], *, cleaning: Cleaning, folder: Path) -> CleanedBlock:
    """Parse, clean and split one block; write its sentences and index to `folder`, in files named by its number.

    Raises:
        DataError: At the first broken line, if `cleaning.bad_lines` is "refuse".
    """
    number, block = numbered
    counts = Counts()
    compare_paragraphs = cleaning.deduplicate == "documents_and_paragraphs"
    index: list[tuple[int, int, int, int]] = []
    lengths: list[int] = []
    hashes: list[int] = []
    text_path, index_path = block_files(folder, number)
    with open(text_path, "wb") as file:
        for text in _bounded_documents(block, on_bad_line(counts, cleaning)):
            paragraphs = clean_document(text, cleaning)
            encoded = [paragraph.encode() for paragraph in paragraphs]
            if not _keep(text, paragraphs, encoded, counts, cleaning):
                continue
            for position, (paragraph, utf8) in enumerate(zip(paragraphs, encoded, strict=True)):
                lines = _sentence_lines(paragraph, cleaning, first=position == 0)
                compared = compare_paragraphs and len(utf8) >= cleaning.min_duplicate_bytes
                index.append((len(lines), len(paragraph), len(utf8), _hash(utf8) if compared else 0))
                file.write(lines)
            file.write(b"\n")
            lengths.append(len(paragraphs))
            hashes.append(_hash(b"\n".join(encoded)) if cleaning.deduplicate != "none" else 0)
    table = np.array([row[:3] for row in index], dtype=np.int64).reshape(-1, 3)
    np.savez(
        index_path,
        paragraphs=np.array(lengths, dtype=np.int64),
        stored_bytes=table[:, 0],
        characters=table[:, 1],
        text_bytes=table[:, 2],
    )
    return CleanedBlock(
        source=block.source,
        paragraph_hashes=np.array([row[3] for row in index], dtype=np.uint64),
        document_hashes=np.array(hashes, dtype=np.uint64),
        bytes_read=block.bytes_read,
        counts=counts,
    )


def block_files(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the paths of the sentences and the index of block `number`."""
    return folder / f"{number:08d}.txt", folder / f"{number:08d}.npz"


def read_index(path: Path) -> BlockIndex:
    """Read a block's index."""
    with np.load(path, allow_pickle=False) as arrays:
        return BlockIndex(**{item.name: arrays[item.name] for item in fields(BlockIndex)})


def on_bad_line(counts: Counts, cleaning: Cleaning) -> OnBadLine:
    """Return the handler of broken lines: raise, or count."""

    def refuse(bad: BadLine) -> None:
        raise bad.error()

    return refuse if cleaning.bad_lines == "refuse" else counts.skip


def _bounded_documents(block: RawBlock, on_bad_line: OnBadLine) -> Iterator[str]:
    for piece in block.pieces:
        for document in documents_of(piece, on_bad_line):
            yield from _cut_long(document)


def _cut_long(text: str) -> Iterator[str]:
    while len(text) > MAX_DOCUMENT_BYTES:
        middle = MAX_DOCUMENT_BYTES // 2
        end = text.rfind("\n", middle, MAX_DOCUMENT_BYTES) + 1 or text.rfind(" ", middle, MAX_DOCUMENT_BYTES) + 1
        end = end or MAX_DOCUMENT_BYTES
        yield text[:end]
        text = text[end:]
    yield text


def _keep(text: str, paragraphs: list[str], encoded: list[bytes], counts: Counts, cleaning: Cleaning) -> bool:
    characters = sum(map(len, paragraphs)) + max(0, len(paragraphs) - 1)
    counts.documents += 1
    counts.paragraphs += len(paragraphs)
    counts.characters += len(text)
    counts.removed_characters += len(text) - characters
    counts.longest_document = max(counts.longest_document, sum(map(len, encoded)))
    if sum(map(len, encoded)) >= cleaning.min_document_bytes:
        return True
    counts.short_documents += 1
    counts.short_characters += characters
    return False


def _sentence_lines(paragraph: str, cleaning: Cleaning, *, first: bool) -> bytes:
    sentences = sentences_of(paragraph, cleaning)
    # The line break before a paragraph is white space like any other.
    return (("" if first else " ") + "\n".join(sentences) + "\n").encode()


def _hash(text: bytes) -> int:
    # 64 bits: among a thousand million paragraphs, the chance that any two different ones collide is 3 %.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1
