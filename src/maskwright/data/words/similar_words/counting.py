"""Distinct words of a corpus sample as token ids with their counts, and the spellings of a file's words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.similar_words import word_hashes
from maskwright.core.types import BoolArray, IntArray, Selection, SpecialTokens
from maskwright.data.shards.corpus import Corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer

DEFAULT_TOKENS = 8_000_000
"""About 30 MB of English or 20 MB of Chinese; more changes the neighbors of frequent words little."""

_STRETCHES = 1024


@dataclass(frozen=True, slots=True)
class TokenSample:
    """Running text as T tokens.

    Attributes:
        sentence_ends: Shape (S,), int64, ascending, the last is T: where each sentence ends.
        share: Share of the corpus's tokens.
    """

    ids: IntArray
    word_starts: BoolArray
    sentence_ends: IntArray
    share: float = 1.0


def sample_tokens(corpus: Corpus, most: int = DEFAULT_TOKENS) -> TokenSample:
    """Take whole sentences from all over a corpus: about `most` tokens, or all."""
    ends, total = corpus.documents.sentence_ends, corpus.num_tokens
    if total <= most:
        lows, highs = np.zeros(1, dtype=np.int64), np.full(1, total)
    else:
        stretches = min(_STRETCHES, most)
        length = most // stretches
        begins = np.linspace(0, total - length, stretches).astype(np.int64)
        # From the start of the sentence with a stretch's first token to the end of that with its last.
        first = np.searchsorted(ends, begins, side="right")
        lows = np.where(first == 0, 0, ends[np.maximum(first - 1, 0)])
        highs = ends[np.searchsorted(ends, begins + length)]
        lows[1:] = np.maximum(lows[1:], highs[:-1])
        lows, highs = lows[lows < highs], highs[lows < highs]
    taken = corpus.take(lows, highs)
    offsets = np.cumsum(highs - lows) - highs
    pieces = [
        ends[np.searchsorted(ends, low, side="right") : np.searchsorted(ends, high) + 1] + offset
        for low, high, offset in zip(lows.tolist(), highs.tolist(), offsets.tolist(), strict=True)
    ]
    return TokenSample(taken.ids, taken.word_starts, np.concatenate(pieces), len(taken.ids) / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWords:
    """The W distinct words of a text of N words.

    Attributes:
        hashes: Shape (W,), uint64, ascending.
        counts: Shape (W,), occurrences.
        lengths: Shape (W,), tokens of each.
        starts: Shape (W,), where each begins in `ids`.
        ids: Shape (sum of lengths,), int32: the words, one after another.
        ordinary: Shape (W,), True for words without special tokens.
        running: Shape (N,), int32: the text as numbers of words.
        sentence_ends: Shape (S,), ascending: where each sentence ends in `running`.
    """

    hashes: NDArray[np.uint64]
    counts: IntArray
    lengths: IntArray
    starts: IntArray
    ids: IntArray
    ordinary: BoolArray
    running: IntArray
    sentence_ends: IntArray

    def __len__(self) -> int:
        return len(self.hashes)

    def numbers_of(self, spelt: Sequence[IntArray]) -> IntArray:
        """Return the number of each of some words, given as tokens, -1 if it does not occur. Shape (K,)."""
        lengths = np.array([len(ids) for ids in spelt], dtype=np.int64)
        numbers = np.full(len(spelt), -1)
        filled = lengths > 0
        if filled.any() and len(self):
            begins = np.cumsum(lengths[filled]) - lengths[filled]
            hashes = word_hashes(np.concatenate(spelt), begins)
            places = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
            numbers[filled] = np.where(self.hashes[places] == hashes, places, -1)
        return numbers

    def tokens_of(self, words: IntArray) -> IntArray:
        """Return the tokens of some words, one word after another."""
        return self.ids[runs(self.starts[words], self.lengths[words])]


def count_words(sample: TokenSample, special: SpecialTokens) -> CountedWords:
    """Count the words of a sample; a sentence's end ends a word."""
    begins = sample.word_starts.copy()
    begins[0] = True
    begins[sample.sentence_ends[:-1]] = True
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(sample.ids))
    hashes, first, running, counts = np.unique(
        word_hashes(sample.ids, starts), return_index=True, return_inverse=True, return_counts=True
    )
    ids = sample.ids[runs(starts[first], lengths[first])]
    kept_starts = np.cumsum(lengths[first]) - lengths[first]
    never = [special.pad, special.unk, special.cls, special.sep, special.mask]
    return CountedWords(
        hashes=hashes,
        counts=counts,
        lengths=lengths[first],
        starts=kept_starts,
        ids=ids,
        ordinary=np.add.reduceat(np.isin(ids, never), kept_starts, dtype=np.int64) == 0,
        running=running.astype(np.int32),
        sentence_ends=np.searchsorted(starts, sample.sentence_ends),
    )


def runs(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return all offsets of some runs, one run after another."""
    return Selection(starts, starts + lengths).positions


def spellings(words: Sequence[str], tokenizer: Tokenizer, *, capitals: bool) -> Iterator[list[IntArray]]:
    """Yield the token ids of all words, once for each distinct way of writing them.

    Byte-level BPE has other tokens after a space, and a cased tokenizer at the beginning of a sentence (if `capitals`).
    A word with a space inside or an unknown token has no tokens.
    """
    special = tokenizer.special_tokens
    never = {special.pad, special.unk, special.cls, special.sep, special.mask}
    none = np.empty(0, dtype=np.int32)
    forms = [list(words)]
    if capitals and not tokenizer.lowercase:
        forms.append([word[:1].upper() + word[1:] for word in words])
    seen: list[list[bytes]] = []
    for form in forms:
        for before in ("", " "):
            encoded = [ids for ids, _ in tokenizer.encode_batch([before + word for word in form])]
            usable = [
                none if any(map(str.isspace, word)) or not never.isdisjoint(ids.tolist()) else ids
                for word, ids in zip(form, encoded, strict=True)
            ]
            kept = [ids.tobytes() for ids in usable]
            if kept not in seen:
                seen.append(kept)
                yield usable
