"""Cleaning of one block of raw text in a worker process.

Besides the sentences it writes an index (lengths and hashes of paragraphs and documents), so that duplicates of other
blocks can be removed without parsing the text again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from maskwright.data.cleaning.overlap import BANDS, band_hashes, hash_of, shares_text
from maskwright.data.cleaning.sentences import split_paragraph
from maskwright.data.cleaning.statistics import Sums
from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.files import BadLine, OnBadLine
from maskwright.data.sources.readers import MAX_DOCUMENT_BYTES, RawBlock, documents_of

_BAD_LINES_KEPT = 5
EXCLUDED = "excluded.npy"
"""The file with the hashes of evaluation text (`overlap.excluded_hashes`), if any is excluded."""


@dataclass(slots=True)
class Counts(Sums):
    """Counts of what was read and dropped of one source. Parts of a cut document count as documents.

    Attributes:
        documents, paragraphs, characters: As read.
        removed_characters: Removed by cleaning (control characters, repeated white space) less those added.
        excluded_paragraphs, excluded_characters: Dropped because they share text with `Cleaning.exclude`.
        short_documents, short_characters: Dropped because they are short; clean characters.
        longest_document: Bytes of clean text of the longest document.
        repeated_documents, repeated_document_characters: Documents that equal an earlier one.
        near_documents, near_document_characters: Documents that nearly equal an earlier one.
        repeated_paragraphs, repeated_paragraph_characters: Paragraphs of other documents that equal an earlier one.
        remnants, remnant_characters: Documents too short without their repeated paragraphs (counted with them).
        bad_lines: Lines (or rows) skipped.
        first_bad_lines: The first few of them, with the problem.
    """

    documents: int = 0
    paragraphs: int = 0
    characters: int = 0
    removed_characters: int = 0
    excluded_paragraphs: int = 0
    excluded_characters: int = 0
    short_documents: int = 0
    short_characters: int = 0
    longest_document: int = 0
    repeated_documents: int = 0
    repeated_document_characters: int = 0
    near_documents: int = 0
    near_document_characters: int = 0
    repeated_paragraphs: int = 0
    repeated_paragraph_characters: int = 0
    remnants: int = 0
    remnant_characters: int = 0
    bad_lines: int = 0
    first_bad_lines: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        Sums.add(self, other)
        del self.first_bad_lines[_BAD_LINES_KEPT:]

    def skip(self, bad: BadLine) -> None:
        self.bad_lines += 1
        if len(self.first_bad_lines) < _BAD_LINES_KEPT:
            self.first_bad_lines.append(f"{bad.location}: {bad.problem}")


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
    """Result of a worker for a block of P paragraphs and D documents; the rest is on disk.

    Attributes:
        paragraph_hashes: Shape (P,); 0 for paragraphs that are never duplicates.
        document_hashes: Shape (D,); 0 where documents are not compared.
        lengths: Shape (D,), paragraphs of each document.
        band_hashes: Shape (14, D): documents with an equal hash in a band are near duplicates; (0, D) if none are
            looked for.
    """

    source: int
    paragraph_hashes: NDArray[np.uint64]
    document_hashes: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    band_hashes: NDArray[np.uint64]
    bytes_read: int
    counts: Counts


def clean_block(numbered: tuple[int, RawBlock], *, cleaning: Cleaning, folder: Path) -> CleanedBlock:
    """Parse, clean and split one block; write its sentences and index to `folder`, in files named by its number.

    Raises DataError at the first broken line, if `cleaning.bad_lines` is "refuse".
    """
    number, block = numbered
    counts = Counts()
    excluded = np.load(folder / EXCLUDED, mmap_mode="r") if cleaning.exclude else None
    compare_paragraphs = cleaning.deduplicate == "documents_and_paragraphs"
    index: list[tuple[int, int, int, int]] = []
    lengths: list[int] = []
    hashes: list[int] = []
    bands: list[list[int]] = []
    with whole_file(folder / f"{number:08d}.txt", folder) as file:
        for text in _bounded_documents(block, on_bad_line(counts, cleaning)):
            paragraphs = _without_excluded(clean_document(text, cleaning), counts, excluded)
            encoded = [paragraph.encode() for paragraph in paragraphs]
            if not _keep(text, paragraphs, encoded, counts, cleaning):
                continue
            for position, (paragraph, utf8) in enumerate(zip(paragraphs, encoded, strict=True)):
                # The line break before a paragraph is white space like any other.
                space = " " if position else ""
                sentences = [paragraph]
                if cleaning.line_breaks != "sentence":
                    sentences = split_paragraph(paragraph, cleaning.language, cleaning.max_sentence_characters)
                lines = (space + "\n".join(sentences) + "\n").encode()
                compared = compare_paragraphs and len(utf8) >= cleaning.min_duplicate_bytes
                index.append((len(lines), len(paragraph), len(utf8), hash_of(utf8) if compared else 0))
                file.write(lines)
            file.write(b"\n")
            lengths.append(len(paragraphs))
            hashes.append(hash_of(b"\n".join(encoded)) if cleaning.deduplicate != "none" else 0)
            bands.append(band_hashes(" ".join(paragraphs)) if cleaning.near_duplicates else [])
    stored_bytes, characters, text_bytes, paragraph_hashes = zip(*index, strict=True) if index else ((), (), (), ())
    arrays = BlockIndex(*(np.array(each, dtype=np.int64) for each in (lengths, stored_bytes, characters, text_bytes)))
    with whole_file(folder / f"{number:08d}.npz", folder) as file:
        np.savez(file, **asdict(arrays))
    return CleanedBlock(
        source=block.source,
        paragraph_hashes=np.array(paragraph_hashes, dtype=np.uint64),
        document_hashes=np.array(hashes, dtype=np.uint64),
        lengths=arrays.paragraphs,
        band_hashes=np.array(bands, dtype=np.uint64).reshape(len(bands), BANDS * cleaning.near_duplicates).T,
        bytes_read=block.bytes_read,
        counts=counts,
    )


@contextmanager
def whole_file(path: Path, temporary: Path) -> Iterator[BinaryIO]:
    """Open a file of the folder `temporary` that is moved to `path` at the end of the block.

    An engine may repeat a call while the first, on a node that it has lost, still writes.
    """
    part = temporary / f"{path.name}.{token_hex(8)}"
    with open(part, "wb") as file:
        yield file
    os.replace(part, path)


def read_index(folder: Path, number: int) -> BlockIndex:
    """Read the index that `clean_block` wrote."""
    with np.load(folder / f"{number:08d}.npz", allow_pickle=False) as arrays:
        return BlockIndex(**arrays)


def on_bad_line(counts: Counts, cleaning: Cleaning) -> OnBadLine:
    """Return the handler of broken lines: raise, or count."""

    def refuse(bad: BadLine) -> None:
        raise bad.error()

    return refuse if cleaning.bad_lines == "refuse" else counts.skip


def _bounded_documents(block: RawBlock, on_bad_line: OnBadLine) -> Iterator[str]:
    most = MAX_DOCUMENT_BYTES
    for piece in block.pieces:
        for text in documents_of(piece, on_bad_line):
            while len(text) > most:
                end = text.rfind("\n", most // 2, most) + 1 or text.rfind(" ", most // 2, most) + 1 or most
                yield text[:end]
                text = text[end:]
            yield text


def _without_excluded(paragraphs: list[str], counts: Counts, excluded: NDArray[np.uint64] | None) -> list[str]:
    if excluded is None:
        return paragraphs
    kept = [paragraph for paragraph in paragraphs if not shares_text(paragraph, excluded)]
    dropped, characters = len(paragraphs) - len(kept), len("\n".join(paragraphs)) - len("\n".join(kept))
    counts.excluded_paragraphs += dropped
    counts.excluded_characters += characters
    # `_keep` counts what is left.
    counts.paragraphs += dropped
    counts.removed_characters -= characters
    return kept


def _keep(text: str, paragraphs: list[str], encoded: list[bytes], counts: Counts, cleaning: Cleaning) -> bool:
    characters, size = len("\n".join(paragraphs)), sum(map(len, encoded))
    counts.documents += 1
    counts.paragraphs += len(paragraphs)
    counts.characters += len(text)
    counts.removed_characters += len(text) - characters
    counts.longest_document = max(counts.longest_document, size)
    if size >= cleaning.min_document_bytes:
        return True
    counts.short_documents += 1
    counts.short_characters += characters
    return False
