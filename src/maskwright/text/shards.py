"""From clean text to token shards, once: ids, word starts, and where sentences and documents end.

Blocks are encoded by a pool of processes and written here in their order as they arrive, so memory stays the
same for any size of corpus and the bytes for any number of workers.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from maskwright.core.checksums import CHECKSUMS, ChecksumBook
from maskwright.core.errors import DataError
from maskwright.core.files import cache_folder, write_json
from maskwright.core.spec import fingerprint
from maskwright.text.array_writer import ArrayWriter
from maskwright.text.block_encoding import EncodedBlock, block_encoder, encode_block, id_type
from maskwright.text.clean_store import CleanCorpus
from maskwright.text.corpus import Corpus
from maskwright.text.corpus_manifest import (
    DATA_CARD,
    DOCUMENT_ENDS,
    DOCUMENT_SENTENCES,
    DOCUMENT_SOURCES,
    SENTENCE_ENDS,
    TOKEN_COUNTS,
    TOKENIZER,
    VERSION,
    Manifest,
    list_files,
    write_manifest,
)
from maskwright.text.kept_folder import kept_or_made
from maskwright.text.ordered_pool import ordered_map
from maskwright.text.progress import Progress, no_progress
from maskwright.text.token_writer import TokenWriter
from maskwright.text.tokenizer import Tokenizer

SHARD_TOKENS = 1 << 28
"""Tokens in a shard: 512 MB of two-byte ids."""


def tokenize_corpus(
    clean: CleanCorpus,
    tokenizer: Tokenizer,
    *,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    shard_tokens: int = SHARD_TOKENS,
) -> Corpus:
    """Encode a clean corpus, or open the shards if that has been done before.

    Whole files are read to compare their checksums, once for each state of a file (its size and time of change);
    shards that are not what was written are made anew, with a warning.

    A sentence is encoded as it stands, with the space before it if there is one; special tokens written in it
    are ordinary text. Sentences that encode to nothing, and documents of only such, are left out and counted.

    Args:
        clean: The corpus.
        tokenizer: The tokenizer.
        cache: Folder for prepared data; None for `core.files.cache_folder()`.
        workers: Processes; 1 works in this process, None uses the cores there are. The bytes are the same.
        progress: Called now and then with bytes of text.
        shard_tokens: Tokens in a shard; a multiple of 8.

    Raises:
        DataError: If no token comes out, or the clean corpus is damaged.
        DeviceError: If the cache cannot be written.
    """
    if shard_tokens <= 0 or shard_tokens % 8:
        raise ValueError(f"shard_tokens {shard_tokens} is not a positive multiple of 8")
    key = fingerprint(["shards", VERSION, clean.fingerprint, tokenizer.fingerprint, shard_tokens])
    cache = cache or cache_folder()
    make = partial(
        _make,
        clean=clean,
        tokenizer=tokenizer,
        key=key,
        workers=workers,
        progress=progress or no_progress,
        shard_tokens=shard_tokens,
    )
    return kept_or_made(cache / f"tokens-{key}", partial(_open, book=cache / CHECKSUMS), make)


def _open(folder: Path, book: Path) -> Corpus:
    with ChecksumBook(book) as checksums:
        return Corpus.open(folder, checksum_of=checksums.checksum)


def _make(
    folder: Path,
    *,
    clean: CleanCorpus,
    tokenizer: Tokenizer,
    key: str,
    workers: int | None,
    progress: Progress,
    shard_tokens: int,
) -> None:
    tokenizer.save(folder / TOKENIZER)
    vocab_size = tokenizer.special_tokens.vocab_size
    token_counts = np.zeros(vocab_size, dtype=np.int64)
    done, total = 0, sum(path.stat().st_size for path in clean.blocks)
    with ExitStack() as files:
        tokens = files.enter_context(TokenWriter(folder, id_type(vocab_size), shard_tokens))
        sentence_ends = files.enter_context(ArrayWriter(folder / SENTENCE_ENDS, "<i8"))
        document_sentences = files.enter_context(ArrayWriter(folder / DOCUMENT_SENTENCES, "<i8"))
        document_ends = files.enter_context(ArrayWriter(folder / DOCUMENT_ENDS, "<i8"))
        document_sources = files.enter_context(ArrayWriter(folder / DOCUMENT_SOURCES, "<i4"))
        document_sentences.append(np.zeros(1, dtype=np.int64))
        for source, block in zip(clean.block_sources, _encoded(clean, folder / TOKENIZER, workers), strict=True):
            ends = tokens.count + np.cumsum(block.sentence_lengths)
            last = np.cumsum(block.document_lengths)
            document_sentences.append(sentence_ends.count + last)
            document_ends.append(ends[last - 1])
            document_sources.append(np.full(len(last), source))
            sentence_ends.append(ends)
            tokens.append(block.ids, block.word_starts)
            token_counts += block.token_counts
            done += block.num_bytes
            progress("tokenizing", done, total)
    if not tokens.count:
        raise DataError("the corpus holds no token", todo="Name files that hold text.")
    np.save(folder / TOKEN_COUNTS, token_counts)
    write_json(folder / DATA_CARD, clean.card)
    manifest = Manifest(
        fingerprint=key,
        clean_fingerprint=clean.fingerprint,
        tokenizer_fingerprint=tokenizer.fingerprint,
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


def _encoded(clean: CleanCorpus, tokenizer_folder: Path, workers: int | None) -> Iterator[EncodedBlock]:
    # What goes to a process is one block's place, not the list of all blocks.
    blocks = (
        replace(clean, blocks=(path,), block_sources=(source,), card={})
        for path, source in zip(clean.blocks, clean.block_sources, strict=True)
    )
    try:
        yield from ordered_map(partial(encode_block, tokenizer_folder=tokenizer_folder), blocks, workers=workers)
    finally:
        block_encoder.cache_clear()
