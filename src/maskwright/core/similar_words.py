"""Similar words and random words as token ids, for every language, vocabulary and segmentation.

A word is found by a hash of its ids, so looking up a batch takes a few array operations. W words, K words looked up,
T token ids.
"""

import hashlib
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from maskwright.core.randomness import SPLITMIX_STEP, mix
from maskwright.core.spec import Spec
from maskwright.core.types import IntArray


class SimilarWordsSpec(Spec):
    """The source of similar words.

    Attributes:
        source: "corpus" (word vectors learned from the corpus), or the path of a file (also .gz and .zst) with a line
            of words for each group of synonyms.
        candidates: Maximum number of similar words per word; 10 as in the toolkit of MacBERT's authors
            (chatopera/Synonyms, `nearby`).
        min_similarity: Minimum cosine of two word vectors; synonyms ignore it. The paper has none. Of 0.4 M words
            of Chinese, 86 % have a vector; 86 % have a neighbor at 0.3, 73 % at 0.5.
        min_count: Minimum occurrences of a word for its vector to be used and for it to be a random word.
    """

    source: Annotated[str, Field(min_length=1)] = "corpus"
    candidates: Annotated[int, Field(ge=1, le=1000)] = 10
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = 0.3
    min_count: Annotated[int, Field(ge=1)] = 5


@dataclass(frozen=True, slots=True)
class WordOptions:
    """For each of K words, its candidates, all of as many tokens as it.

    Attributes:
        firsts: Shape (K,), int64: where the first begins in `SimilarWords.ids`.
        counts: Shape (K,), int64: how many there are.
    """

    firsts: IntArray
    counts: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarWords:
    """For a word its similar words, and for a length the corpus's words of that many tokens.

    Candidates have as many tokens as the word, and none contains a special token.

    Attributes:
        ids: Shape (T,): the tokens of all candidates and of all random words, one word after another.
        hashes: Shape (W,), ascending: `word_hashes` of the words that have similar ones.
        lengths: Shape (W,): tokens of each.
        firsts: Shape (W,): where each word's candidates begin in `ids`, the most similar first.
        counts: Shape (W,): candidates of each, at least 1.
        random_firsts: Shape (L,): where the random words of 0, 1, ... L-1 tokens begin in `ids`.
        random_counts: Shape (L,): number of random words of each length.
    """

    ids: NDArray[np.int32]
    hashes: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]
    random_firsts: NDArray[np.int64]
    random_counts: NDArray[np.int64]

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with anything in the table."""
        digest = hashlib.blake2b(digest_size=8)
        for part in fields(self):
            digest.update(np.ascontiguousarray(getattr(self, part.name)).tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.hashes)

    def similar_to(self, hashes: NDArray[np.uint64], lengths: IntArray) -> WordOptions:
        """Return the similar words of the words with some `word_hashes` and numbers of tokens. Shapes (K,)."""
        if not len(self):
            return _nothing(len(hashes))
        indices = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        # The length is compared too: even if two hashes collide, the number of tokens stays.
        known = (self.hashes[indices] == hashes) & (self.lengths[indices] == lengths)
        return WordOptions(self.firsts[indices], np.where(known, self.counts[indices], 0))

    def of_length(self, lengths: IntArray) -> WordOptions:
        """Return the corpus's words with these numbers of tokens. `lengths` has shape (K,)."""
        if not len(self.random_counts):
            return _nothing(len(lengths))
        indices = np.minimum(lengths, len(self.random_counts) - 1)
        return WordOptions(self.random_firsts[indices], np.where(indices == lengths, self.random_counts[indices], 0))


def word_hashes(ids: IntArray, begins: IntArray) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each word's token ids.

    Two words of a table of a million collide with a probability of 3e-8.

    Args:
        ids: Shape (T,), the tokens of the words, one word after another.
        begins: Shape (K,), ascending from 0: where each word begins in `ids`; no word is empty.
    """
    if not len(begins):
        return np.empty(0, dtype=np.uint64)
    lengths = np.diff(begins, append=len(ids))
    positions = np.arange(1, len(ids) + 1) - np.repeat(begins, lengths)
    with np.errstate(over="ignore"):
        # Scrambled by id and position, then added: words differ unless all of them agree.
        scattered = mix(ids.astype(np.uint64) + positions.astype(np.uint64) * np.uint64(SPLITMIX_STEP))
        hashes: NDArray[np.uint64] = np.add.reduceat(scattered, begins)
    return hashes


def _nothing(count: int) -> WordOptions:
    none = np.zeros(count, dtype=np.int64)
    return WordOptions(none, none)
