"""One block of clean text to tokens: the work of one process."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.text.clean_store import CleanCorpus
from maskwright.text.stream_encoder import StreamEncoder
from maskwright.text.tokenizer import Tokenizer

_BATCH_CHARACTERS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """The tokens of a block. Sentences and documents that encode to nothing are not in it.

    Attributes:
        ids: Shape (T,), in the type they are stored in.
        word_starts: Shape (T,), True where a token begins a word.
        sentence_lengths: Shape (S,), int64: tokens of each sentence, never 0.
        document_lengths: Shape (D,), int64: sentences of each document, never 0.
        token_counts: Shape (V,), int64: how often each id occurs.
        num_bytes: Size of the block's file.
    """

    ids: IntArray
    word_starts: BoolArray
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    num_bytes: int


def id_type(vocab_size: int) -> "np.dtype[np.uint16] | np.dtype[np.uint32]":
    """Return the type that ids are stored in: two bytes where they fit, little-endian on every machine."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_block(block: CleanCorpus, tokenizer_folder: Path) -> EncodedBlock:
    """Encode a corpus of one block.

    Args:
        block: A clean corpus with a single block.
        tokenizer_folder: Where the tokenizer is saved; it is read once a process.

    Raises:
        DataError: If block or tokenizer cannot be read.
    """
    encoder, vocab_size = block_encoder(tokenizer_folder)
    streams, waiting, characters = [], list[str](), 0
    document_sentences = []
    for sentences in block.sentences(0):
        document_sentences.append(len(sentences))
        for sentence in sentences:
            waiting.append(sentence)
            characters += len(sentence)
            if characters >= _BATCH_CHARACTERS:
                streams.append(encoder.encode(waiting))
                waiting, characters = [], 0
    streams.append(encoder.encode(waiting))
    lengths = np.concatenate([stream.lengths for stream in streams])
    documents = np.repeat(np.arange(len(document_sentences)), document_sentences)
    kept_sentences = np.bincount(documents[lengths > 0], minlength=len(document_sentences))
    ids = np.concatenate([stream.ids for stream in streams])
    return EncodedBlock(
        ids=ids.astype(id_type(vocab_size)),
        word_starts=np.concatenate([stream.word_starts for stream in streams]),
        sentence_lengths=lengths[lengths > 0],
        document_lengths=kept_sentences[kept_sentences > 0],
        token_counts=np.bincount(ids, minlength=vocab_size),
        num_bytes=block.blocks[0].stat().st_size,
    )


@lru_cache(maxsize=1)
def block_encoder(tokenizer_folder: Path) -> tuple[StreamEncoder, int]:
    """Return the encoder of this process and the vocabulary's size; the next block finds its words known."""
    tokenizer = Tokenizer.from_folder(tokenizer_folder)
    return StreamEncoder(tokenizer), tokenizer.special_tokens.vocab_size
