"""Encode one block of clean text: the work of one process."""

from collections import Counter
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
from maskwright.data.words.level_facts import LevelFacts
from maskwright.data.words.lexicon import Spans
from maskwright.data.words.spec import Words

_BATCH_CHARACTERS = 1 << 18


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a block is encoded; small enough to be sent to a process with every block.

    Attributes:
        tokenizer: The folder where the tokenizer is saved.
        words: What counts as a word, a phrase and an entity.
        collocations: The corpus's own phrases, one a line, if they are wanted.
    """

    tokenizer: Path
    words: Words
    collocations: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBlock:
    """The tokens of a block. Sentences and documents that encode to nothing are not in it.

    Attributes:
        ids: Shape (T,), in the type they are stored in.
        word_starts: Shape (T,), True where a token begins a word.
        level_starts: For each level, shape (T,), True where a token begins a unit of that level.
        sentence_lengths: Shape (S,), int64: tokens of each sentence, never 0.
        document_lengths: Shape (D,), int64: sentences of each document, never 0.
        token_counts: Shape (V,), int64: how often each id occurs.
        num_bytes: Size of the block's file.
        facts: For each level, what was found.
    """

    ids: IntArray
    word_starts: BoolArray
    level_starts: dict[str, BoolArray]
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    num_bytes: int
    facts: dict[str, LevelFacts]


def id_type(vocab_size: int) -> "np.dtype[np.uint16] | np.dtype[np.uint32]":
    """Return the type that ids are stored in: two bytes where they fit, little-endian on every machine."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def encode_block(block: CleanCorpus, encoding: Encoding) -> EncodedBlock:
    """Encode a corpus of one block.

    Args:
        encoding: How; tokenizer and word lists are read once a process.

    Raises:
        DataError: If block, tokenizer or word lists cannot be read.
    """
    tools = block_tools(encoding)
    given = block.given_spans(0) if encoding.words.needs_given_spans else {}
    parts, waiting, characters, done = list[_Part](), list[str](), 0, 0
    document_sentences = []
    for sentences in block.sentences(0):
        document_sentences.append(len(sentences))
        for sentence in sentences:
            waiting.append(sentence)
            characters += len(sentence)
            if characters >= _BATCH_CHARACTERS:
                parts.append(tools.encode(waiting, _between(given, done, done + characters)))
                done += characters
                waiting, characters = [], 0
    parts.append(tools.encode(waiting, _between(given, done, done + characters)))
    lengths = np.concatenate([part.stream.lengths for part in parts])
    documents = np.repeat(np.arange(len(document_sentences)), document_sentences)
    kept_sentences = np.bincount(documents[lengths > 0], minlength=len(document_sentences))
    ids = np.concatenate([part.stream.ids for part in parts])
    starts, levels = [part.annotation.level_starts for part in parts], encoding.words.levels
    return EncodedBlock(
        ids=ids.astype(id_type(tools.vocab_size)),
        word_starts=np.concatenate([part.annotation.word_starts for part in parts]),
        level_starts={level: np.concatenate([part[level] for part in starts]) for level in levels},
        sentence_lengths=lengths[lengths > 0],
        document_lengths=kept_sentences[kept_sentences > 0],
        token_counts=np.bincount(ids, minlength=tools.vocab_size),
        num_bytes=block.blocks[0].stat().st_size,
        facts={level: _facts(level, parts) for level in levels},
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Some sentences as tokens, with the facts about their words."""

    stream: TokenStream
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class BlockTools:
    """What a process keeps from block to block: the next block finds its words known.

    Attributes:
        encoder: Encodes sentences.
        annotator: Finds words, phrases and entities; None where words are the tokenizer's own.
        vocab_size: Entries of the vocabulary.
    """

    encoder: StreamEncoder
    annotator: Annotator | None
    vocab_size: int

    def encode(self, sentences: list[str], given: dict[str, Spans]) -> _Part:
        """Encode sentences; `given` spans are characters of all of them joined."""
        stream = self.encoder.encode(sentences)
        if self.annotator is None:
            return _Part(stream, Annotation.of_words(stream.word_starts))
        return _Part(stream, self.annotator.annotate(sentences, stream, given))


@lru_cache(maxsize=1)
def block_tools(encoding: Encoding) -> BlockTools:
    """Return this process's tools for an encoding."""
    tokenizer = Tokenizer.from_folder(encoding.tokenizer)
    annotator = open_annotator(encoding.words, encoding.collocations)
    encoder = StreamEncoder(tokenizer, with_places=annotator is not None)
    return BlockTools(encoder, annotator, tokenizer.special_tokens.vocab_size)


def _between(given: dict[str, Spans], first: int, end: int) -> dict[str, Spans]:
    """Return the spans that begin among some characters of a block, counted from the first of these."""
    found = {}
    for level, spans in given.items():
        low, high = np.searchsorted(spans.starts, [first, end])
        found[level] = Spans(spans.starts[low:high] - first, np.minimum(spans.ends[low:high], end) - first)
    return found


def _facts(level: str, parts: list[_Part]) -> LevelFacts:
    facts = LevelFacts()
    for part in parts:
        found = part.annotation.found[level]
        facts.units += len(found)
        facts.tokens += part.annotation.tokens_inside[level]
        facts.lost += part.annotation.lost[level]
        facts.counts.update(Counter(found))
    return facts
