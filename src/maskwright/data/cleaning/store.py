"""The clean corpus on disk: built in two passes, cached by fingerprint.

The first pass reads, cleans and splits blocks and records hashes of paragraphs and documents; then each file of hashes
is searched for repeats; the second pass removes them and writes the store. All three are maps of pure functions from
files to files over an engine (`data.engines`); this process reads the corpus and moves hashes.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import bits, keys
from maskwright.core.spec import fingerprint
from maskwright.core.storage.checksums import CHECKSUMS, ChecksumCache, damaged_file_error, refuse_unreadable
from maskwright.core.storage.files import cache_folder, checksum, read_json, write_json, write_text
from maskwright.data.cache import open_checked, open_or_build
from maskwright.data.cleaning.block import EXCLUDED, clean_block, on_bad_line
from maskwright.data.cleaning.data_card import SourceCount, card_page, column_remark, data_card
from maskwright.data.cleaning.deduplication import Duplicates, plan_blocks, store_block
from maskwright.data.cleaning.overlap import excluded_hashes
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.engines import ordered_map
from maskwright.data.prepared import PreparedText, find_prepared
from maskwright.data.sources.arguments import Source, resolve_sources
from maskwright.data.sources.docstrings import docstrings_fingerprint
from maskwright.data.sources.readers import raw_blocks
from maskwright.reporting.reporter import Progress, no_progress

# Increment when a code change alters the stored text of the same input.
STORE_VERSION = 2
STORE_FILE = "store.json"


def _build_store(
    folder: Path, sources: tuple[Source, ...], cleaning: Cleaning, key: str, workers: int | None, progress: Progress
) -> None:
    """Write the store of a clean corpus to an empty folder (see `clean_corpus`)."""
    work = folder / "work"
    work.mkdir()
    if cleaning.exclude:
        np.save(work / EXCLUDED, excluded_hashes(cleaning))
    counted = [SourceCount(source, sum(path.stat().st_size for path in source.files)) for source in sources]
    corpus_bytes = sum(each.bytes_on_disk for each in counted)
    duplicates = Duplicates(work, corpus_bytes)
    block_sources: list[int] = []
    # Rows of tables are checked here, while they are read; lines of text in the workers, which parse them.
    reading = [on_bad_line(each.counts, cleaning) for each in counted]

    def note_column(number: int, column: str) -> None:
        if sources[number].column is None and column != "text":
            counted[number].columns[column] += 1

    blocks = raw_blocks(sources, cleaning.text_documents, reading, workers=workers, on_column=note_column)
    clean = partial(clean_block, cleaning=cleaning, folder=work)
    for block in ordered_map(clean, enumerate(blocks), workers=workers):
        counted[block.source].counts.add(block.counts)
        duplicates.add(block)
        block_sources.append(block.source)
        progress("reading and cleaning (bytes)", block.bytes_read, corpus_bytes or None)
    for each in counted:
        _refuse_empty(each, cleaning)
    duplicates.find(workers)
    (folder / "blocks").mkdir()
    stored: list[dict[str, Any]] = []
    plans, planned = tee(plan_blocks(block_sources, work, duplicates, cleaning.min_document_bytes))
    store = partial(store_block, work=work, folder=folder / "blocks", min_document_bytes=cleaning.min_document_bytes)
    for plan, made in zip(planned, ordered_map(store, plans, workers=workers), strict=True):
        of_source = counted[plan.source]
        of_source.counts.add(made.counts)
        of_source.kept.add(made.statistics)
        of_source.examples[:] = of_source.examples or made.examples
        if plan.name:
            stored.append({"name": plan.name, "source": plan.source, "text_checksum": made.checksum})
        for number, _ in plan.parts:
            for suffix in ("txt", "npz"):
                (work / f"{number:08d}.{suffix}").unlink()
            progress("deduplicating (blocks)", number + 1, len(block_sources))
    del duplicates  # Its mapped files are in the folder.
    shutil.rmtree(work)
    for each in counted:
        if not each.kept.documents:
            raise DataError(
                f"nothing is left of {each.source.name}: all of it is a duplicate of earlier text",
                hint="Leave it out, or keep duplicates with `--clean deduplicate=none`.",
            )
    card = data_card(counted, cleaning, key)
    write_json(folder / "data_card.json", card)
    write_text(folder / "data_card.md", card_page(card))
    write_json(folder / STORE_FILE, {"version": STORE_VERSION, "fingerprint": key, "blocks": stored})


def _refuse_empty(count: SourceCount, cleaning: Cleaning) -> None:
    source, read = count.source, count.counts
    if read.documents > read.short_documents:
        return
    if read.bad_lines and not read.documents:
        raise DataError(
            f"no line of {source.name} could be read: {read.bad_lines:,} were skipped, the first for this: "
            f"{read.first_bad_lines[0]}",
            hint="Check that the file is what its name says.",
        )
    if not read.longest_document:
        raise DataError(f"{source.name} holds no text", hint="Give files with text, or leave this one out.")
    columns = f" ({column_remark(count)}; `#COLUMN` names another)" if count.columns else ""
    raise DataError(
        f"no document of {source.name} is long enough: {read.documents:,} were read, the longest has "
        f"{read.longest_document:,} bytes",
        allowed=f"documents of {cleaning.min_document_bytes:,} bytes of clean UTF-8 or more",
        hint=f"Give longer documents{columns}, or keep shorter ones, e.g. with "
        f"`--clean min_document_bytes={max(1, cleaning.min_document_bytes // 3)}`.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanCorpus:
    """A clean corpus on disk.

    Attributes:
        fingerprint: Identifies the text: names and content of the files, cleaning and format version, without the
            files' folders and times and without weights.
        num_documents, num_sentences, num_characters, num_bytes: Totals of the clean text (UTF-8, without line ends).
        source_weights: The weight of each CORPUS argument, None if not given.
        source_names: A short name of each.
        blocks: Text files of a few MB: one sentence per line, a blank line after each document. A line begins with a
            space if and only if white space separated the sentence from the previous one of its document.
        block_sources: Each block's source number.
        checksums: Each block's checksum, compared when the block is read.
        card: The data card.
    """

    folder: Path
    fingerprint: str
    num_documents: int
    num_sentences: int
    num_characters: int
    num_bytes: int
    source_weights: tuple[float | None, ...]
    source_names: tuple[str, ...]
    blocks: tuple[Path, ...]
    block_sources: tuple[int, ...]
    checksums: tuple[str, ...]
    card: dict[str, Any] = field(repr=False)

    @property
    def scripts(self) -> Mapping[str, float]:
        """Share of letters in each script that occurs (`statistics.py`)."""
        shares: Mapping[str, float] = self.card["total"]["scripts"]
        return shares

    def sentences(self, block: int) -> list[list[str]]:
        """Return the documents of a block (see `read_block`)."""
        return read_block(self.blocks[block], self.checksums[block])

    def sample(self, max_bytes: int, seed: int) -> Iterator[str]:
        """Yield a sample of sentences from all over the corpus, of at most `max_bytes` bytes of UTF-8, in corpus order.

        It depends only on the seed and each document's position in the corpus. Constant memory. A corpus that fits is
        yielded whole.
        """
        if max_bytes <= 0 or not self.num_bytes:
            return
        # Each sentence has the same probability, 2 % too small so that bytes rarely run out before the end.
        share = 1.0 if self.num_bytes <= max_bytes else 0.98 * max_bytes / self.num_bytes
        threshold = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
        spent = first = 0
        for path, expected in zip(self.blocks, self.checksums, strict=True):
            data = _checked_bytes(path, expected)
            ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0x0A)
            starts = np.append(0, ends + 1)[:-1]
            # Blank lines end documents.
            lengths = np.diff(np.flatnonzero(starts == ends), prepend=-1) - 1
            starts, ends = starts[starts < ends], ends[starts < ends]
            key = keys(seed, "corpus sample", 0, np.arange(first, first + len(lengths)))
            first += len(lengths)
            position = concatenated_ranges(np.zeros_like(lengths), lengths)
            chosen = bits(np.repeat(key, lengths), position) <= threshold
            for start, end in zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True):
                spent += end - start
                if spent > max_bytes:
                    return
                yield data[start:end].decode()


def read_block(path: Path, expected_checksum: str) -> list[list[str]]:
    """Return the documents of a block, each the list of its sentences as stored; DataError if the file is damaged."""
    text = _checked_bytes(path, expected_checksum).decode()
    return [document.split("\n") for document in text.split("\n\n")[:-1]]


def _checked_bytes(path: Path, expected_checksum: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        refuse_unreadable(path, error)
        raise damaged_file_error(path, f"it cannot be read ({error.strerror})") from error
    if checksum(data) != expected_checksum:
        raise damaged_file_error(path, "it is damaged (its checksum differs)")
    return data


def clean_corpus(
    corpus: Sequence[str | Path],
    *,
    cleaning: Cleaning = Cleaning(),
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> CleanCorpus:
    """Read, clean, split and deduplicate a corpus, or open it from the cache.

    The bytes of the result depend only on the files and the cleaning. An interrupted call leaves nothing incomplete,
    and two processes may build the same corpus at once. A file's checksum is computed (about a second per gigabyte)
    when its size or one of its times is new.

    Args:
        corpus: Files, folders, globs, URLs of these, `owner/name` of a hub dataset, or `docstrings`; each may end in
            `:weight` and name a column with `#column` (`sources`). Of repeated text that of the earlier argument is
            kept. Or one folder or URL of prepared text (`data.prepared`), which is opened.
        cache: Cache directory; None for `core.storage.files.cache_folder()`.
        workers: Processes; 1 works in this process, None uses the available cores.

    Raises DataError if an argument cannot be read, a line is broken, or no text is left of a source; DeviceError if the
    cache folder's disk is full or cannot be written.
    """
    cache = cache or cache_folder()
    if prepared := find_prepared(corpus, cache, progress):
        return _open_prepared(prepared, cleaning)
    sources = resolve_sources(corpus, cache=cache, progress=progress)
    with ChecksumCache(cache / CHECKSUMS) as checksums:
        described = [
            [
                source.name,
                source.kind,
                [[path.name, _checksum(path, checksums)] for path in source.files],
                source.column,
                asdict(source.dataset) if source.dataset else None,
                docstrings_fingerprint() if source.kind == "docstrings" else None,
            ]
            for source in sources
        ]
        # The suffix decides how a file is read.
        excluded = [
            _checksum(Path(name).expanduser(), checksums) + "".join(Path(name).suffixes) for name in cleaning.exclude
        ]
    # The content of the excluded files counts, not where they are.
    key = fingerprint([STORE_VERSION, described, cleaning.replace(exclude=excluded)])

    def make(folder: Path) -> None:
        _build_store(folder, sources, cleaning, key, workers, progress)

    return open_or_build(cache / f"clean-{key}", partial(_open, sources=sources), make, ("blocks/*",))


def _open_prepared(prepared: PreparedText, cleaning: Cleaning) -> CleanCorpus:
    if cleaning not in (Cleaning(), used := Cleaning.model_validate(prepared.cleaning)):
        changed = [name for name in Cleaning.model_fields if getattr(cleaning, name) != getattr(used, name)]
        raise DataError(
            f"{prepared.clean.parent} was prepared with another cleaning ({', '.join(changed)})",
            hint="Leave out --clean, or prepare the text again.",
        )
    named = zip(prepared.names, prepared.weights, strict=True)
    sources = tuple(Source(name=name, weight=weight) for name, weight in named)
    return open_checked(prepared.clean, partial(_open, sources=sources))


def _checksum(path: Path, checksums: ChecksumCache) -> str:
    try:
        return checksums.checksum(path)
    except OSError as error:
        hint = "Check that it exists and that you may read it."
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint=hint) from error


def _open(folder: Path, sources: tuple[Source, ...]) -> CleanCorpus:
    store, card = read_json(folder / STORE_FILE), read_json(folder / "data_card.json")
    kept = card["total"]["kept"]
    blocks = [folder / "blocks" / block["name"] for block in store["blocks"]]
    if missing := next((block for block in blocks if not block.is_file()), None):
        raise DataError(f"{missing} is missing")
    return CleanCorpus(
        folder=folder,
        fingerprint=store["fingerprint"],
        num_documents=kept["documents"],
        num_sentences=kept["sentences"],
        num_characters=kept["characters"],
        num_bytes=kept["bytes"],
        source_weights=tuple(source.weight for source in sources),
        source_names=tuple(source.name for source in sources),
        blocks=tuple(blocks),
        block_sources=tuple(block["source"] for block in store["blocks"]),
        checksums=tuple(block["text_checksum"] for block in store["blocks"]),
        card=card,
    )
