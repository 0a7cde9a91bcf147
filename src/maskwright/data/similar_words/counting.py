"""The distinct words of a text, as token ids: runs between word starts, with how often each occurs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.similar_words import word_hashes
from maskwright.core.types import BoolArray, IntArray, Selection, SpecialTokens
from maskwright.data.similar_words.sampling import TokenSample


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWords:
    """The W distinct words of a text of N words.

    Attributes:
        hashes: Shape (W,), uint64, ascending.
        counts: Shape (W,), int64: how often each occurs.
        lengths: Shape (W,), int64: tokens of each.
        starts: Shape (W,), int64: where each begins in `ids`.
        ids: Shape (sum of lengths,), int32: the words, one after another.
        ordinary: Shape (W,), True for words without a special token (an unknown one, say).
        running: Shape (N,), int32: the text as numbers of words.
        sentence_ends: Shape (S,), int64, ascending: where each sentence ends in `running`.
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

    def find(self, hashes: NDArray[np.uint64]) -> IntArray:
        """Return the number of each word with such a hash, -1 where there is none. Shape (K,)."""
        if not len(self):
            return np.full(len(hashes), -1)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return np.where(self.hashes[places] == hashes, places, -1)

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
