"""Token shards: ids (2 or 4 bytes), word, phrase and entity starts (1 bit each), sentence and document ends.

Blocks are encoded in a process pool and written in order as they arrive, so memory is bounded for any corpus and the
bytes are the same for any number of workers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copyfile
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from maskwright.core.checksums import CHECKSUMS, ChecksumBook
from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, write_json
from maskwright.core.spec import fingerprint
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.pool import ordered_map
from maskwright.data.progress import Progress, no_progress
from maskwright.data.shards.corpus import (
    COLLOCATIONS,
    DATA_CARD,
    DOCUMENT_ENDS,
    DOCUMENT_SENTENCES,
    DOCUMENT_SOURCES,
    SENTENCE_ENDS,
    TOKEN_COUNTS,
    TOKENIZER,
    VERSION,
    Corpus,
    Manifest,
    list_files,
    span_starts_file,
    tokens_file,
    word_starts_file,
    write_manifest,
)
from maskwright.data.shards.encoding import EncodedBlock, Encoding, block_tools, encode_block, id_type
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.annotator import check_words, segmenter_fingerprint, segmenter_of, words_fingerprint
from maskwright.data.words.collocations import find_collocations
from maskwright.data.words.span_facts import SpanFacts
from maskwright.data.words.spec import Words


class ArrayWriter:
    """Appends to a one-dimensional .npy file; a context manager.

    Args:
        dtype: Type of the elements; what is appended is cast to it.
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.count = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 (closed by `close`)
        self._header_bytes = self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        """Append elements. Shape (N,)."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.count += len(values)

    def close(self) -> None:
        """Write the final length into the file's head."""
        self._file.seek(0)
        # numpy's format leaves room for the length to grow, for exactly this.
        if self._write_header() != self._header_bytes:  # pragma: no cover
            raise AssertionError("the head of a .npy file changed its size")
        self._file.close()

    def _write_header(self) -> int:
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self._file, description)
        return self._file.tell()

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TokenWriter:
    """Appends to the stream; a context manager.

    Args:
        shard_tokens: Tokens in each shard but the last; a multiple of 8.
        levels: Levels of units whose starts are stored beside those of words.
    """

    def __init__(self, folder: Path, dtype: "np.dtype[Any]", shard_tokens: int, levels: Sequence[str] = ()) -> None:
        self.count = 0
        self._levels = tuple(levels)
        self._folder = folder
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._files = ExitStack()
        # Starts of words and levels, a row each, that do not fill a byte yet.
        self._waiting = np.empty((1 + len(self._levels), 0), dtype=np.bool_)

    def append(self, ids: IntArray, word_starts: BoolArray, span_starts: Mapping[str, BoolArray] = {}) -> None:
        """Append tokens. Shapes (T,)."""
        starts = np.stack([word_starts, *(span_starts[level] for level in self._levels)])
        done = 0
        while done < len(ids):
            place = self.count % self._shard_tokens
            if place == 0:
                self._next_shard()
            end = min(len(ids), done + self._shard_tokens - place)
            self._ids.append(ids[done:end])
            self._waiting = np.concatenate([self._waiting, starts[:, done:end]], axis=1)
            self._write_bits(self._waiting.shape[1] // 8 * 8)
            self.count += end - done
            done = end

    def close(self) -> None:
        """Finish the last shard."""
        if self.count:
            self._write_bits(self._waiting.shape[1])
        self._files.close()

    def _write_bits(self, count: int) -> None:
        for file, row in zip(self._starts, self._waiting, strict=True):
            file.append(np.packbits(row[:count], bitorder="little"))
        self._waiting = self._waiting[:, count:]

    def _next_shard(self) -> None:
        # A full shard holds whole bytes, so no bit is waiting here.
        self._files.close()
        shard = self.count // self._shard_tokens
        self._ids = self._files.enter_context(ArrayWriter(self._folder / tokens_file(shard), self._dtype))
        names = [word_starts_file(shard), *(span_starts_file(level, shard) for level in self._levels)]
        self._starts = [self._files.enter_context(ArrayWriter(self._folder / name, "u1")) for name in names]

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


SHARD_TOKENS = 1 << 28
"""Tokens in a shard: 512 MB of two-byte ids."""


def tokenize_corpus(
    clean: CleanCorpus,
    tokenizer: Tokenizer,
    *,
    words: Words = Words(),
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    shard_tokens: int = SHARD_TOKENS,
) -> Corpus:
    """Encode a clean corpus, or open the shards if that has been done before.

    Whole files are read to compare their checksums, once for each state of a file (its size and time of change);
    damaged shards are rebuilt, with a warning.

    A sentence is encoded as it stands, with the space before it if there is one; special tokens written in it
    are ordinary text. Sentences that encode to nothing, and documents of only such, are left out and counted.

    Args:
        words: What counts as a word, a phrase and an entity.
        cache: Folder for prepared data; None for `core.files.cache_folder()`.
        workers: Processes; 1 works in this process, None uses the cores there are. The bytes are the same.
        progress: Called now and then with bytes of text.
        shard_tokens: Tokens in a shard; a multiple of 8.

    Raises:
        DataError: If no token comes out, the clean corpus is damaged, or what finds words is missing.
        DeviceError: If the cache cannot be written.
    """
    if shard_tokens <= 0 or shard_tokens % 8:
        raise ValueError(f"shard_tokens {shard_tokens} is not a positive multiple of 8")
    check_words(words)
    words_key = words_fingerprint(words)
    key = fingerprint(["shards", VERSION, clean.fingerprint, tokenizer.fingerprint, words_key, shard_tokens])
    cache = cache or cache_folder()
    make = partial(
        _make,
        clean=clean,
        tokenizer=tokenizer,
        words=words,
        words_key=words_key,
        key=key,
        cache=cache,
        workers=workers,
        progress=progress or no_progress,
        shard_tokens=shard_tokens,
    )
    return open_or_build(cache / f"tokens-{key}", partial(_open, book=cache / CHECKSUMS), make)


def _open(folder: Path, book: Path) -> Corpus:
    with ChecksumBook(book) as checksums:
        return Corpus.open(folder, checksum_of=checksums.checksum)


def _make(
    folder: Path,
    *,
    clean: CleanCorpus,
    tokenizer: Tokenizer,
    words: Words,
    words_key: str,
    key: str,
    cache: Path,
    workers: int | None,
    progress: Progress,
    shard_tokens: int,
) -> None:
    tokenizer.save(folder / TOKENIZER)
    encoding = Encoding(folder / TOKENIZER, words, _collocations(folder, clean, words, cache, progress))
    facts: dict[str, SpanFacts] = {level: SpanFacts() for level in words.span_kinds}
    vocab_size = tokenizer.special_tokens.vocab_size
    token_counts = np.zeros(vocab_size, dtype=np.int64)
    done, total = 0, sum(path.stat().st_size for path in clean.blocks)
    with ExitStack() as files:
        tokens = files.enter_context(TokenWriter(folder, id_type(vocab_size), shard_tokens, words.span_kinds))
        sentence_ends = files.enter_context(ArrayWriter(folder / SENTENCE_ENDS, "<i8"))
        document_sentences = files.enter_context(ArrayWriter(folder / DOCUMENT_SENTENCES, "<i8"))
        document_ends = files.enter_context(ArrayWriter(folder / DOCUMENT_ENDS, "<i8"))
        document_sources = files.enter_context(ArrayWriter(folder / DOCUMENT_SOURCES, "<i4"))
        document_sentences.append(np.zeros(1, dtype=np.int64))
        for source, block in zip(clean.block_sources, _encoded(clean, encoding, workers), strict=True):
            ends = tokens.count + np.cumsum(block.sentence_lengths)
            last = np.cumsum(block.document_lengths)
            document_sentences.append(sentence_ends.count + last)
            document_ends.append(ends[last - 1])
            document_sources.append(np.full(len(last), source))
            sentence_ends.append(ends)
            tokens.append(block.ids, block.word_starts, block.span_starts)
            for level, found in block.facts.items():
                facts[level].add(found)
            token_counts += block.token_counts
            done += block.num_bytes
            progress("tokenizing", done, total)
    if not tokens.count:
        raise DataError("the corpus contains no tokens", todo="Name files that hold text.")
    if words_fingerprint(words) != words_key:
        raise DataError("a word list changed while the text was tokenized", todo="Repeat the command.")
    np.save(folder / TOKEN_COUNTS, token_counts)
    write_json(folder / DATA_CARD, clean.card)
    manifest = Manifest(
        fingerprint=key,
        clean_fingerprint=clean.fingerprint,
        tokenizer_fingerprint=tokenizer.fingerprint,
        words_fingerprint=words_key,
        words=words.model_dump(mode="json"),
        levels={level: found.to_json(tokens.count) for level, found in facts.items()},
        num_tokens=tokens.count,
        num_sentences=sentence_ends.count,
        num_documents=document_ends.count,
        num_characters=clean.num_characters,
        num_bytes=clean.num_bytes,
        dropped_sentences=clean.num_sentences - sentence_ends.count,
        dropped_documents=clean.num_documents - document_ends.count,
        vocab_size=vocab_size,
        shard_tokens=shard_tokens,
        source_names=list(clean.source_names),
        files=list_files(folder),
    )
    write_manifest(folder, manifest)


def _collocations(folder: Path, clean: CleanCorpus, words: Words, cache: Path, progress: Progress) -> Path | None:
    """Find the corpus's own phrases, if they are wanted, and keep a copy with the tokens they were found in."""
    if "collocations" not in words.phrases:
        return None
    segmenter, key = segmenter_of(words), segmenter_fingerprint(words)
    copyfile(find_collocations(clean, segmenter, key, cache=cache, progress=progress), folder / COLLOCATIONS)
    return folder / COLLOCATIONS


def _encoded(clean: CleanCorpus, encoding: Encoding, workers: int | None) -> Iterator[EncodedBlock]:
    # What goes to a process is one block's place, not the list of all blocks.
    blocks = (
        replace(clean, blocks=(path,), block_sources=(source,), card={})
        for path, source in zip(clean.blocks, clean.block_sources, strict=True)
    )
    try:
        yield from ordered_map(partial(encode_block, encoding=encoding), blocks, workers=workers)
    finally:
        block_tools.cache_clear()
