"""Token shards: ids (2 or 4 bytes), word, phrase and entity starts (1 bit each), sentence and document ends.

Blocks are encoded in a process pool and written in order as they arrive, so memory is bounded for any corpus and the
bytes are the same for any number of workers.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from maskwright.core.errors import DataError
from maskwright.core.spec import fingerprint
from maskwright.core.storage.files import cache_folder, write_json
from maskwright.core.types import IntArray
from maskwright.data.cache import open_or_build
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
from maskwright.data.words.annotator import Annotation, Annotator, check_words, open_annotator, words_fingerprint
from maskwright.data.words.collocations import find_collocations
from maskwright.data.words.span_facts import SpanFacts
from maskwright.data.words.spec import Words
from maskwright.reporting.reporter import Progress, no_progress

SHARD_TOKENS = 1 << 28
"""512 MB of two-byte ids."""
_SENTENCES_AT_ONCE = 2048


class ArrayWriter:
    """Appends to a one-dimensional .npy file; a context manager."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.count = 0
        self._dtype = np.dtype(dtype)
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 (closed by `__exit__`)
        self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        """Append elements, cast to the array's type. Shape (N,)."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self.count += len(values)

    def _write_header(self) -> None:
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.count,)}
        np.lib.format.write_array_header_1_0(self._file, description)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)
        self._write_header()  # of the same size: numpy's format reserves space for the length to grow
        self._file.close()


class TokenWriter:
    """Appends tokens, word starts and the starts of some kinds of spans to shards; a context manager.

    Args:
        shard_tokens: Tokens in each shard but the last; a multiple of 8.
        kinds: Kinds of spans.
    """

    def __init__(self, folder: Path, dtype: "np.dtype[Any]", shard_tokens: int, kinds: Sequence[str] = ()) -> None:
        self.count = 0
        self._kinds = ("word", *kinds)
        self._folder = folder
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        self._files = ExitStack()
        # Starts of words and spans, a row each, that do not fill a byte yet.
        self._waiting = np.empty((len(self._kinds), 0), dtype=np.bool_)

    def append(self, ids: IntArray, annotation: Annotation) -> None:
        """Append T tokens. Shape (T,)."""
        starts = np.stack([annotation.word_starts, *(annotation.span_starts[kind] for kind in self._kinds[1:])])
        done = 0
        while done < len(ids):
            position = self.count % self._shard_tokens
            if position == 0:
                self._next_shard()
            end = min(len(ids), done + self._shard_tokens - position)
            self._ids.append(ids[done:end])
            self._waiting = np.concatenate([self._waiting, starts[:, done:end]], axis=1)
            self._write_bits(self._waiting.shape[1] // 8 * 8)
            self.count += end - done
            done = end

    def _write_bits(self, count: int) -> None:
        for file, row in zip(self._starts, self._waiting, strict=True):
            file.append(np.packbits(row[:count], bitorder="little"))
        self._waiting = self._waiting[:, count:]

    def _next_shard(self) -> None:
        # A full shard contains whole bytes, so no bit is waiting here.
        self._files.close()
        shard = self.count // self._shard_tokens
        self._ids = self._files.enter_context(ArrayWriter(self._folder / tokens_file(shard), self._dtype))
        names = [starts_file(kind, shard) for kind in self._kinds]
        self._starts = [self._files.enter_context(ArrayWriter(self._folder / name, "u1")) for name in names]

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self.count:
            self._write_bits(self._waiting.shape[1])
        self._files.close()


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

    Raises:
        DataError: If no token comes out, the clean corpus is damaged, or the segmenter or lexicon is missing.
        DeviceError: If the cache cannot be written.
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
        shards = sorted(path for pattern in CHECKED_WHEN_READ for path in folder.glob(pattern))
        checksums: dict[str, Any] = {path.name: block_checksums(path) for path in shards}
        np.savez(folder / BLOCK_CHECKSUMS, **checksums)

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
    done, total = 0, sum(path.stat().st_size for path in clean.blocks)
    with ExitStack() as files:
        tokens = files.enter_context(TokenWriter(folder, id_type(vocab_size), shard_tokens, words.span_kinds))
        sentence_ends = files.enter_context(ArrayWriter(folder / SENTENCE_ENDS, "<i8"))
        document_sentences = files.enter_context(ArrayWriter(folder / DOCUMENT_SENTENCES, "<i8"))
        document_ends = files.enter_context(ArrayWriter(folder / DOCUMENT_ENDS, "<i8"))
        document_sources = files.enter_context(ArrayWriter(folder / DOCUMENT_SOURCES, "<i4"))
        document_sentences.append(np.zeros(1, dtype=np.int64))
        files.callback(block_tools.cache_clear)
        checked = zip(clean.blocks, clean.checksums, strict=True)
        encoded = ordered_map(partial(encode_block, folder=folder, words=words), checked, workers=workers)
        for path, source, block in zip(clean.blocks, clean.block_sources, encoded, strict=True):
            ends = tokens.count + np.cumsum(block.sentence_lengths)
            last = np.cumsum(block.document_lengths)
            document_sentences.append(sentence_ends.count + last)
            document_ends.append(ends[last - 1])
            document_sources.append(np.full(len(last), source))
            sentence_ends.append(ends)
            tokens.append(block.ids, block.annotation)
            for kind, of_kind in facts.items():
                of_kind.add(block.annotation.facts[kind])
            token_counts += np.bincount(block.ids, minlength=vocab_size)
            done += path.stat().st_size
            progress("tokenizing (bytes)", done, total)
    if not tokens.count:
        raise DataError("the corpus contains no tokens", hint="Name files that contain text.")
    np.save(folder / TOKEN_COUNTS, token_counts)
    return {
        "levels": {kind: of_kind.to_json(tokens.count) for kind, of_kind in facts.items()},
        "num_tokens": tokens.count,
        "num_sentences": sentence_ends.count,
        "num_documents": document_ends.count,
        "dropped_sentences": clean.num_sentences - sentence_ends.count,
        "dropped_documents": clean.num_documents - document_ends.count,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """The tokens of a block, without sentences and documents that have none.

    Attributes:
        ids: Shape (T,), in their stored type.
        sentence_lengths: Shape (S,), int64: tokens of each sentence, at least 1.
        document_lengths: Shape (D,), int64: sentences of each document, at least 1.
    """

    ids: IntArray
    annotation: Annotation
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]


def id_type(vocab_size: int) -> "np.dtype[np.uint16] | np.dtype[np.uint32]":
    """Return the stored type of ids: two bytes if they fit, little-endian on every machine."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_block(block: tuple[Path, str], folder: Path, words: Words) -> EncodedBlock:
    """Encode a block of clean text; tokenizer and word lists are read once per process.

    Args:
        block: Its path and checksum.
        folder: Holds the tokenizer and, if wanted, the collocations.

    Raises:
        DataError: If block, tokenizer or word lists cannot be read.
    """
    encoder, annotator, vocab_size = block_tools(folder, words)
    documents = read_block(*block)
    streams: list[TokenStream] = []
    annotations: list[Annotation] = []
    sentences = list(chain.from_iterable(documents))
    for start in range(0, max(1, len(sentences)), _SENTENCES_AT_ONCE):
        batch = sentences[start : start + _SENTENCES_AT_ONCE]
        stream = encoder.encode(batch)
        streams.append(stream)
        annotations.append(
            Annotation(stream.word_starts, {}, {}) if annotator is None else annotator.annotate(batch, stream)
        )
    lengths = np.concatenate([stream.lengths for stream in streams])
    document_of = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    kept_sentences = np.bincount(document_of[lengths > 0], minlength=len(documents))
    facts = {kind: SpanFacts() for kind in words.span_kinds}
    for annotation in annotations:
        for kind, of_kind in facts.items():
            of_kind.add(annotation.facts[kind])
    return EncodedBlock(
        ids=np.concatenate([stream.ids for stream in streams]).astype(id_type(vocab_size)),
        annotation=Annotation(
            word_starts=np.concatenate([annotation.word_starts for annotation in annotations]),
            span_starts={kind: np.concatenate([each.span_starts[kind] for each in annotations]) for kind in facts},
            facts=facts,
        ),
        sentence_lengths=lengths[lengths > 0],
        document_lengths=kept_sentences[kept_sentences > 0],
    )


@lru_cache(maxsize=1)
def block_tools(folder: Path, words: Words) -> tuple[StreamEncoder, Annotator | None, int]:
    """Return this process's encoder, annotator (None if words are the tokenizer's own) and vocabulary size."""
    tokenizer = Tokenizer.from_folder(folder / TOKENIZER)
    collocations = folder / COLLOCATIONS if "collocations" in words.phrases else None
    annotator = open_annotator(words, collocations)
    encoder = StreamEncoder(tokenizer, with_offsets=annotator is not None)
    return encoder, annotator, tokenizer.special_tokens.vocab_size
