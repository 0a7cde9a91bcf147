"""Token shards: ids (2 or 4 bytes), word, phrase and entity starts (1 bit each), sentence and document ends.

Workers encode blocks to files; each shard is written from those of its blocks: by the leading process with the local
engine, else by a worker. The leading process receives only the lengths of sentences and documents, so its memory is
bounded for any corpus. The bytes are the same for any number of workers.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, tee
from pathlib import Path
from shutil import copyfile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, write_json
from maskwright.core.types import BoolArray
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.block import whole_file
from maskwright.data.cleaning.store import CleanCorpus, read_block
from maskwright.data.engines import ordered_map
from maskwright.data.shards.checked_array import block_checksums
from maskwright.data.shards.corpus import (
    BLOCK_CHECKSUMS,
    CHECKED_WHEN_READ,
    COLLOCATIONS,
    DOCUMENT_ENDS,
    DOCUMENT_SENTENCES,
    DOCUMENT_SOURCES,
    FORMAT,
    MANIFEST,
    SENTENCE_ENDS,
    TOKEN_COUNTS,
    TOKENIZER,
    VERSION,
    Corpus,
    starts_file,
    tokens_file,
)
from maskwright.data.tokenizers.stream_encoder import StreamEncoder, TokenStream
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.annotator import Annotator, check_words, open_annotator, words_fingerprint
from maskwright.data.words.collocations import find_collocations
from maskwright.data.words.span_facts import SpanFacts
from maskwright.data.words.spec import SpanKind, Words
from maskwright.reporting.reporter import Progress, no_progress

SHARD_TOKENS = 1 << 28
"""512 MB of two-byte ids."""
_SENTENCES_AT_ONCE = 2048
_WORK = "work"
_BOUNDARIES = ((SENTENCE_ENDS, "<i8"), (DOCUMENT_SENTENCES, "<i8"), (DOCUMENT_ENDS, "<i8"), (DOCUMENT_SOURCES, "<i4"))
Shard = tuple[int, tuple[tuple[int, int], ...]]
"""Its number, and the number and token offset of each block that has tokens in it."""


class ArrayWriter:
    """Appends to a one-dimensional .npy file (see `array_writer`)."""

    def __init__(self, file: BinaryIO, dtype: DTypeLike) -> None:
        self.count = 0
        self._dtype = np.dtype(dtype)
        self._file = file
        self.write_header()

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.count += len(values)

    def write_header(self) -> None:
        """Write the header, of the same size for any length: numpy's format reserves space for it to grow."""
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self._file, description)


@contextmanager
def array_writer(path: Path, temporary: Path, dtype: DTypeLike) -> Iterator[ArrayWriter]:
    """Write a file of the folder `temporary` that is moved to `path` at the end of the block (`whole_file`)."""
    with whole_file(path, temporary) as file:
        yield (writer := ArrayWriter(file, dtype))
        file.seek(0)
        writer.write_header()


def tokenize_corpus(
    clean: CleanCorpus,
    tokenizer: Tokenizer,
    *,
    words: Words = Words(),
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
    shard_tokens: int = SHARD_TOKENS,
) -> Corpus:
    """Encode a clean corpus, or open the shards from the cache.

    Damaged shards are rebuilt with a warning. A sentence is encoded with the space before it, if any; special tokens in
    it are ordinary text. Sentences without tokens, and documents of only such, are left out and counted.

    Args:
        cache, workers: As in `clean_corpus`; the bytes are the same for any number of workers.
        progress: Called with bytes of text.
        shard_tokens: Tokens per shard; a multiple of 8.

    Raises DataError if no token comes out, the clean corpus is damaged, or the segmenter or lexicon is missing;
    DeviceError if the cache cannot be written.
    """
    if shard_tokens <= 0 or shard_tokens % 8:
        raise ValueError(f"shard_tokens {shard_tokens} is not a positive multiple of 8")
    check_words(words)
    words_key = words_fingerprint(words)
    key = fingerprint(["shards", VERSION, clean.fingerprint, tokenizer.fingerprint, words_key, shard_tokens])
    cache = cache or cache_folder()
    if clean.folder.with_name(f"tokens-{key}").is_dir():
        cache = clean.folder.parent  # of prepared text

    def make(folder: Path) -> None:
        tokenizer.save(folder / TOKENIZER)
        if "collocations" in words.phrases:
            copyfile(find_collocations(clean, words, cache=cache, progress=progress), folder / COLLOCATIONS)
        vocab_size = tokenizer.special_tokens.vocab_size
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": key,
            "clean_fingerprint": clean.fingerprint,
            "tokenizer_fingerprint": tokenizer.fingerprint,
            "words_fingerprint": words_key,
            "words": words.model_dump(mode="json"),
            **_write_shards(folder, clean, words, vocab_size, shard_tokens, workers, progress),
            "num_characters": clean.num_characters,
            "num_bytes": clean.num_bytes,
            "vocab_size": vocab_size,
            "shard_tokens": shard_tokens,
            "source_names": clean.source_names,
        }
        write_json(folder / MANIFEST, manifest)

    return open_or_build(cache / f"tokens-{key}", Corpus.open, make, CHECKED_WHEN_READ)


def _write_shards(
    folder: Path,
    clean: CleanCorpus,
    words: Words,
    vocab_size: int,
    shard_tokens: int,
    workers: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Write all arrays; return the manifest's counts."""
    facts = {kind: SpanFacts() for kind in words.span_kinds}
    token_counts = np.zeros(vocab_size, dtype=np.int64)
    checksums: dict[str, Any] = {}
    (work := folder / _WORK).mkdir()
    with ExitStack() as files:
        sentence_ends, document_sentences, document_ends, document_sources = (
            files.enter_context(array_writer(folder / name, work, dtype)) for name, dtype in _BOUNDARIES
        )
        document_sentences.append(np.zeros(1, dtype=np.int64))
        files.callback(block_tools.cache_clear)
        checked = zip(range(len(clean.blocks)), clean.blocks, clean.checksums, strict=True)
        # Closed, so that no worker writes into the folder after an error.
        encoded = files.enter_context(
            closing(ordered_map(partial(encode_block, folder=folder, words=words), checked, workers=workers))
        )

        def shards() -> Iterator[Shard]:
            """Append the boundaries of each encoded block; yield each shard once all its tokens are encoded."""
            number = num_tokens = done = 0
            total = sum(path.stat().st_size for path in clean.blocks)
            blocks: list[tuple[int, int]] = []
            for index, block in enumerate(encoded):
                ends = num_tokens + np.cumsum(block.sentence_lengths)
                last = np.cumsum(block.document_lengths)
                document_sentences.append(sentence_ends.count + last)
                document_ends.append(ends[last - 1])
                document_sources.append(np.full(len(last), clean.block_sources[index]))
                sentence_ends.append(ends)
                for kind, of_kind in facts.items():
                    of_kind.add(block.facts[kind])
                blocks.append((index, num_tokens))
                num_tokens += int(block.sentence_lengths.sum())
                while num_tokens >= (number + 1) * shard_tokens:
                    yield number, tuple(blocks)
                    number, blocks = number + 1, blocks[-1:]
                done += clean.blocks[index].stat().st_size
                progress("tokenizing (bytes)", done, total)
            if num_tokens > number * shard_tokens:
                yield number, tuple(blocks)

        planned, plans = tee(shards())
        write = partial(
            write_shard, folder=folder, kinds=tuple(facts), shard_tokens=shard_tokens, vocab_size=vocab_size
        )
        # No second pool of processes, and few shards at once, whose blocks are kept until they are written.
        written = files.enter_context(closing(ordered_map(write, plans, workers=1)))
        for (_, blocks), (counts, of_files) in zip(planned, written, strict=True):
            token_counts += counts
            checksums |= of_files
            for block, _ in blocks[:-1]:  # The last one may continue in the next shard.
                (work / f"{block:08d}.npz").unlink()
    if not checksums:
        raise DataError("the corpus contains no tokens", hint="Name files that contain text.")
    shutil.rmtree(work)
    np.save(folder / TOKEN_COUNTS, token_counts)
    np.savez(folder / BLOCK_CHECKSUMS, **dict(sorted(checksums.items())))
    num_tokens = int(token_counts.sum())
    return {
        "levels": {kind: of_kind.to_json(num_tokens) for kind, of_kind in facts.items()},
        "num_tokens": num_tokens,
        "num_sentences": sentence_ends.count,
        "num_documents": document_ends.count,
        "dropped_sentences": clean.num_sentences - sentence_ends.count,
        "dropped_documents": clean.num_documents - document_ends.count,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """Result of a worker for a block, without sentences and documents that have no tokens; tokens are on disk.

    Attributes:
        sentence_lengths: Shape (S,), int64: tokens of each sentence, at least 1.
        document_lengths: Shape (D,), int64: sentences of each document, at least 1.
        facts: For each kind, its spans of two and more words.
    """

    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    facts: dict[SpanKind, SpanFacts]


def id_type(vocab_size: int) -> "np.dtype[np.uint16] | np.dtype[np.uint32]":
    """Return the stored type of ids: two bytes if they fit, little-endian on every machine."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_block(block: tuple[int, Path, str], *, folder: Path, words: Words) -> EncodedBlock:
    """Write ids, shape (T,), and starts, a row of bits for words and each kind of spans, of a block of clean text.

    Tokenizer and word lists are read once per process.

    Args:
        block: Its number, path and checksum.
        folder: Holds the tokenizer and, if wanted, the collocations.

    Raises DataError if block, tokenizer or word lists cannot be read.
    """
    encoder, annotator, vocab_size = block_tools(folder, words)
    number, path, checksum = block
    documents = read_block(path, checksum)
    streams: list[TokenStream] = []
    starts: list[list[BoolArray]] = []
    facts = {kind: SpanFacts() for kind in words.span_kinds}
    sentences = list(chain.from_iterable(documents))
    for start in range(0, max(1, len(sentences)), _SENTENCES_AT_ONCE):
        batch = sentences[start : start + _SENTENCES_AT_ONCE]
        streams.append(stream := encoder.encode(batch))
        if annotator is None:
            starts.append([stream.word_starts])
            continue
        annotation = annotator.annotate(batch, stream)
        starts.append([annotation.word_starts, *(annotation.span_starts[kind] for kind in facts)])
        for kind, of_kind in facts.items():
            of_kind.add(annotation.facts[kind])
    lengths = np.concatenate([stream.lengths for stream in streams])
    document_of = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    kept_sentences = np.bincount(document_of[lengths > 0], minlength=len(documents))
    ids = np.concatenate([stream.ids for stream in streams]).astype(id_type(vocab_size))
    with whole_file(folder / _WORK / f"{number:08d}.npz", folder / _WORK) as file:
        np.savez(file, ids=ids, starts=np.packbits(np.concatenate(starts, axis=1), axis=1))
    return EncodedBlock(
        sentence_lengths=lengths[lengths > 0], document_lengths=kept_sentences[kept_sentences > 0], facts=facts
    )


def write_shard(
    shard: Shard, *, folder: Path, kinds: Sequence[str], shard_tokens: int, vocab_size: int
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.uint64]]]:
    """Write a shard from the files of `encode_block`; the same bytes if it is repeated.

    Returns:
        The count of each id, shape (V,), and the checksums of each file (`block_checksums`).
    """
    number, blocks = shard
    work = folder / _WORK
    names = [tokens_file(number), *(starts_file(kind, number) for kind in ("word", *kinds))]
    counts = np.zeros(vocab_size, dtype=np.int64)
    with ExitStack() as files:
        tokens, *starts = (
            files.enter_context(array_writer(folder / name, work, dtype))
            for name, dtype in zip(names, (id_type(vocab_size), *("u1" for _ in names[1:])), strict=True)
        )
        # Starts, a row each, that do not fill a byte yet.
        waiting = np.empty((len(starts), 0), dtype=np.bool_)
        for block, offset in blocks:
            first = number * shard_tokens - offset
            part = slice(max(0, first), first + shard_tokens)
            with np.load(work / f"{block:08d}.npz", allow_pickle=False) as arrays:
                ids, bits = arrays["ids"], arrays["starts"]
            unpacked = np.unpackbits(bits, axis=1, count=len(ids)).view(np.bool_)
            waiting = np.concatenate([waiting, unpacked[:, part]], axis=1)
            ids = ids[part]
            tokens.append(ids)
            counts += np.bincount(ids, minlength=vocab_size)
            size = waiting.shape[1]
            whole = size if block == blocks[-1][0] else size // 8 * 8
            for file, row in zip(starts, waiting, strict=True):
                file.append(np.packbits(row[:whole], bitorder="little"))
            waiting = waiting[:, whole:]
    return counts, {name: block_checksums(folder / name) for name in names}


@lru_cache(maxsize=1)
def block_tools(folder: Path, words: Words) -> tuple[StreamEncoder, Annotator | None, int]:
    """Return this process's encoder, annotator (None if words are the tokenizer's own) and vocabulary size."""
    tokenizer = Tokenizer.from_folder(folder / TOKENIZER)
    collocations = folder / COLLOCATIONS if "collocations" in words.phrases else None
    annotator = open_annotator(words, collocations)
    encoder = StreamEncoder(tokenizer, with_offsets=annotator is not None)
    return encoder, annotator, tokenizer.special_tokens.vocab_size
