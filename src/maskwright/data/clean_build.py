"""How a clean corpus is made, in two passes with files between them.

The first pass reads, cleans and splits blocks in a pool of processes and notes the hashes of paragraphs and documents;
the second cuts out what stood earlier and writes the store. Each pass is a pure function from one block's files to
another's, so both can become steps of a cluster pipeline without changing a byte.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

from maskwright.core.errors import DataError
from maskwright.core.files import write_json, write_text
from maskwright.data.block_writer import BlockWriter, Repeats, stored_spans, without_repeats
from maskwright.data.clean_block import CleanedBlock, Counts, block_files, clean_block, on_bad_line, read_index
from maskwright.data.cleaning import Cleaning
from maskwright.data.data_card import SourceCount, card_page, data_card
from maskwright.data.deduplication import DuplicateFinder
from maskwright.data.ordered_pool import ordered_map
from maskwright.data.progress import Progress
from maskwright.data.readers import raw_blocks
from maskwright.data.sources import Source

# Raise it with every change of what the same files become, in any file of the path from readers to docstrings.
STORE_VERSION = 1
STORE_FILE = "store.json"


def build_store(
    folder: Path,
    sources: tuple[Source, ...],
    cleaning: Cleaning,
    key: str,
    workers: int | None,
    progress: Progress,
    *,
    with_spans: bool = False,
) -> None:
    """Make the store of a clean corpus in an empty folder.

    Args:
        folder: Where to; what goes wrong may leave it half-filled.
        sources: What to read.
        cleaning: How to clean.
        key: The corpus's fingerprint.
        workers: Processes; None chooses.
        progress: Called now and then.
        with_spans: Whether to keep the phrases and entities that come with the documents.

    Raises:
        DataError: If something cannot be read, nothing is left of a source, or spans are wanted and there are none.
    """
    work = folder / "work"
    work.mkdir()
    counts = [Counts() for _ in sources]
    documents = DuplicateFinder(work / "documents")
    paragraphs = DuplicateFinder(work / "paragraphs")
    sizes = [sum(path.stat().st_size for path in source.files) for source in sources]
    block_sources: list[int] = []
    for block in _first_pass(sources, cleaning, work, counts, workers, with_spans):
        counts[block.source].add(block.counts)
        documents.add(block.document_hashes)
        paragraphs.add(block.paragraph_hashes)
        block_sources.append(block.source)
        progress("reading and cleaning", block.bytes_read, sum(sizes) or None)
    for source, read in zip(sources, counts, strict=True):
        _refuse_empty(source, read, cleaning)
    if with_spans and not any(read.spans for read in counts):
        raise DataError(
            "phrases or entities are to come from the corpus, but no document brings any",
            allowed='.jsonl records with a field "spans": [[start, end, "entity" or "phrase"], ...]',
            todo="Add them, or take 'corpus' out of words.phrases and words.entities.",
        )
    writer = BlockWriter(folder / "blocks", len(sources), with_spans=with_spans)
    repeats = _second_pass(work, block_sources, documents, paragraphs, writer, cleaning, progress)
    for source, statistics in zip(sources, writer.statistics, strict=True):
        if not statistics.documents:
            raise DataError(
                f"nothing is left of {source.name}: all of it stood earlier in the corpus",
                todo="Leave it out, or keep repeats with `--clean deduplicate=none`.",
            )
    card = data_card(
        [
            SourceCount(source=source, bytes_on_disk=size, read=read, repeats=repeated, kept=kept, examples=examples)
            for source, size, read, repeated, kept, examples in zip(
                sources, sizes, counts, repeats, writer.statistics, writer.examples, strict=True
            )
        ],
        cleaning,
        key,
    )
    shutil.rmtree(work)
    write_json(folder / "data_card.json", card)
    write_text(folder / "data_card.md", card_page(card))
    store = {"version": STORE_VERSION, "fingerprint": key, "blocks": [asdict(block) for block in writer.blocks]}
    write_json(folder / STORE_FILE, store)


def _first_pass(
    sources: tuple[Source, ...],
    cleaning: Cleaning,
    work: Path,
    counts: list[Counts],
    workers: int | None,
    with_spans: bool,
) -> Iterator[CleanedBlock]:
    # Rows of tables are checked while reading, here; lines of text where they are parsed, in the workers.
    reading = [on_bad_line(count, cleaning) for count in counts]
    blocks = raw_blocks(sources, cleaning, reading, workers=workers)
    clean = partial(clean_block, cleaning=cleaning, folder=work, with_spans=with_spans)
    return ordered_map(clean, enumerate(blocks), workers=workers)


def _second_pass(
    work: Path,
    block_sources: list[int],
    documents: DuplicateFinder,
    paragraphs: DuplicateFinder,
    writer: BlockWriter,
    cleaning: Cleaning,
    progress: Progress,
) -> list[Repeats]:
    repeats = [Repeats() for _ in writer.statistics]
    repeated_documents, repeated_paragraphs = documents.duplicates(), paragraphs.duplicates()
    document = paragraph = 0
    for number, source in enumerate(block_sources):
        text, index_path = block_files(work, number)
        index = read_index(index_path)
        data, dropped, kept = without_repeats(
            text.read_bytes(),
            index,
            repeated_documents[document : document + len(index.paragraphs)],
            repeated_paragraphs[paragraph : paragraph + len(index.characters)],
            cleaning.min_document_bytes,
        )
        document += len(index.paragraphs)
        paragraph += len(index.characters)
        repeats[source].add(dropped)
        writer.add(source, data, *stored_spans(index, kept))
        text.unlink()
        index_path.unlink()
        progress("taking out repeats", number + 1, len(block_sources))
    writer.flush()
    # Windows removes no file that is still mapped.
    del repeated_documents, repeated_paragraphs
    return repeats


def _refuse_empty(source: Source, read: Counts, cleaning: Cleaning) -> None:
    if read.documents > read.short_documents:
        return
    if read.bad_lines and not read.documents:
        raise DataError(
            f"no line of {source.name} could be read: {read.bad_lines:,} were skipped, the first for this: "
            f"{read.bad_places[0]}",
            todo="Check that the file is what its name says.",
        )
    if not read.longest_document:
        raise DataError(f"{source.name} holds no text", todo="Give files with text, or leave this one out.")
    raise DataError(
        f"no document of {source.name} is long enough: {read.documents:,} were read, the longest has "
        f"{read.longest_document:,} bytes",
        allowed=f"documents of {cleaning.min_document_bytes:,} bytes of clean UTF-8 or more",
        todo="Give longer documents, or keep shorter ones, e.g. with "
        f"`--clean min_document_bytes={max(1, cleaning.min_document_bytes // 3)}`.",
    )
