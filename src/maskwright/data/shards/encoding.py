"""Encoding of one block of clean text in a worker process."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.cleaning.store import CleanCorpus
from maskwright.data.tokenizers.stream_encoder import StreamEncoder, TokenStream
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.annotator import Annotation, Annotator, open_annotator
from maskwright.data.words.span_facts import SpanFacts
from maskwright.data.words.spec import Words

_BATCH_CHARACTERS = 1 << 18


@dataclass(frozen=True, slots=True)
class Encoding:
    """How blocks are encoded; small, since it is sent to a process with every block.

    Attributes:
        tokenizer: The folder of the tokenizer.
        collocations: The phrases found in the corpus, one per line, if wanted.
    """

    tokenizer: Path
    words: Words
    collocations: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """The tokens of a block, without sentences and documents that have none.

    Attributes:
        ids: Shape (T,), in their stored type.
        word_starts: Shape (T,), True where a token begins a word.
        span_starts: For each kind, shape (T,), True where a token begins a unit: a span of that kind, or a
            word outside spans.
        sentence_lengths: Shape (S,), int64: tokens of each sentence, at least 1.
        document_lengths: Shape (D,), int64: sentences of each document, at least 1.
        token_counts: Shape (V,), int64: count of each id.
        num_bytes: Size of the block's file.
        facts: For each kind of spans, what was found.
    """

    ids: IntArray
    word_starts: BoolArray
    span_starts: dict[str, BoolArray]
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    num_bytes: int
    facts: dict[str, SpanFacts]


def id_type(vocab_size: int) -> "np.dtype[np.uint16] | np.dtype[np.uint32]":
    """Return the stored type of ids: two bytes if they fit, little-endian on every machine."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_block(block: CleanCorpus, encoding: Encoding) -> EncodedBlock:
    """Encode a corpus of one block; tokenizer and word lists are read once per process.

    Raises:
        DataError: If block, tokenizer or word lists cannot be read.
    """
    encoder, annotator, vocab_size = block_tools(encoding)
    documents = list(block.sentences(0))
    streams: list[TokenStream] = []
    annotations: list[Annotation] = []
    for batch in _batches([sentence for document in documents for sentence in document]):
        stream = encoder.encode(batch)
        streams.append(stream)
        annotations.append(
            Annotation(stream.word_starts, {}, {}) if annotator is None else annotator.annotate(batch, stream)
        )
    lengths = np.concatenate([stream.lengths for stream in streams])
    document_of = np.repeat(np.arange(len(documents)), list(map(len, documents)))
    kept_sentences = np.bincount(document_of[lengths > 0], minlength=len(documents))
    ids = np.concatenate([stream.ids for stream in streams])
    facts: dict[str, SpanFacts] = {kind: SpanFacts() for kind in encoding.words.span_kinds}
    for annotation in annotations:
        for kind, found in annotation.facts.items():
            facts[kind].add(found)
    return EncodedBlock(
        ids=ids.astype(id_type(vocab_size)),
        word_starts=np.concatenate([annotation.word_starts for annotation in annotations]),
        span_starts={kind: np.concatenate([each.span_starts[kind] for each in annotations]) for kind in facts},
        sentence_lengths=lengths[lengths > 0],
        document_lengths=kept_sentences[kept_sentences > 0],
        token_counts=np.bincount(ids, minlength=vocab_size),
        num_bytes=block.blocks[0].stat().st_size,
        facts=facts,
    )


def _batches(sentences: list[str]) -> list[list[str]]:
    """Cut sentences into batches after every 2^18 characters; the last may be empty."""
    batches: list[list[str]] = [[]]
    characters = 0
    for sentence in sentences:
        batches[-1].append(sentence)
        characters += len(sentence)
        if characters >= _BATCH_CHARACTERS:
            batches.append([])
            characters = 0
    return batches


@lru_cache(maxsize=1)
def block_tools(encoding: Encoding) -> tuple[StreamEncoder, Annotator | None, int]:
    """Return this process's encoder, annotator (None if words are the tokenizer's own) and vocabulary size."""
    tokenizer = Tokenizer.from_folder(encoding.tokenizer)
    annotator = open_annotator(encoding.words, encoding.collocations)
    encoder = StreamEncoder(tokenizer, with_places=annotator is not None)
    return encoder, annotator, tokenizer.special_tokens.vocab_size
