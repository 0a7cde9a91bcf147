"""Word vectors from the corpus (skip-gram with negative sampling, Mikolov et al. 2013), and nearest neighbors by
cosine among words of the same number of tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.libraries import imported
from maskwright.reporting.reporter import Progress

# Window 2, not word2vec's 5: near words determine what can replace a word, far ones the topic (Levy and Goldberg 2014,
# "Dependency-based word embeddings", section 4). The rest is word2vec's default for skip-gram.
SETTINGS = {"vector_size": 100, "window": 2, "sg": 1, "negative": 5}
# A small text gets more passes. Measured on 0.4 M Chinese words: after 5 passes all vectors still point the same way,
# after 30 the neighbors of Beijing are other cities. On 4 M words 3 passes are enough.
READ_WORDS, MIN_PASSES, MAX_PASSES = 12_000_000, 3, 30
_SEED = 1
LEARNING = [SETTINGS, READ_WORDS, MIN_PASSES, MAX_PASSES, _SEED]
"""Constants that a table learned from the corpus depends on."""
MAX_WORDS = 50_000
"""Maximum number of compared words, the most frequent; a second or two for each 20,000."""

_SENTENCES_BETWEEN_REPORTS = 4096
# gensim truncates longer sentences.
_MAX_SENTENCE_WORDS = 10_000
_COMPARED_AT_ONCE = 1 << 24


def require_gensim() -> Any:
    """Import the library that learns word vectors; DataError if it is missing or cannot be loaded."""
    otherwise = "take them from a file of synonyms: --set replacement.table.source=FILE"
    return imported(
        "gensim", "learning similar words from the corpus", "words", otherwise=otherwise, newest_python=(3, 13)
    )


def learn_vectors(
    text: IntArray, sentence_ends: IntArray, chosen: BoolArray, min_count: int, progress: Progress
) -> tuple[IntArray, NDArray[np.float32]]:
    """Learn vectors of words; the same text gives the same vectors.

    Args:
        text: Shape (N,), words as numbers.
        sentence_ends: Shape (S,), ascending: where each sentence ends.
        chosen: Shape (W,), the words whose vectors are wanted; at least one occurs `min_count` times.

    Returns:
        (numbers of the chosen frequent words, shape (K,), ascending; vectors, shape (K, size)), K at most `MAX_WORDS`.
    """
    passes = min(max(round(READ_WORDS / len(text)), MIN_PASSES), MAX_PASSES)
    # Words are counted in one more pass. One worker: two race for the weights, which makes runs differ.
    model = require_gensim().models.Word2Vec(
        _Sentences(text, [0, *sentence_ends.tolist()], passes + 1, progress),
        min_count=min_count,
        epochs=passes,
        workers=1,
        seed=_SEED,
        **SETTINGS,
    )
    numbers = np.array(list(map(int, model.wv.index_to_key)))
    # gensim orders words by falling count, so the most frequent come first.
    kept = np.flatnonzero(chosen[numbers])[:MAX_WORDS]
    kept = kept[np.argsort(numbers[kept])]
    return numbers[kept], model.wv.vectors[kept]


class _Sentences:
    """The text as lists of words, each written as its number, for gensim's several passes."""

    def __init__(self, text: IntArray, bounds: Sequence[int], passes: int, progress: Progress) -> None:
        self._text, self._bounds, self._progress = text, bounds, progress
        self._names = np.array([str(number) for number in range(int(text.max()) + 1)], dtype=object)
        self._done, self._total = 0, passes * (len(bounds) - 1)

    def __iter__(self) -> Iterator[list[str]]:
        for start, end in pairwise(self._bounds):
            for low in range(start, end, _MAX_SENTENCE_WORDS):
                yield self._names[self._text[low : min(low + _MAX_SENTENCE_WORDS, end)]].tolist()
            self._done += 1
            if self._done % _SENTENCES_BETWEEN_REPORTS == 0 or self._done == self._total:
                self._progress("learning similar words (sentences)", self._done, self._total)


def nearest(vectors: NDArray[np.float32], groups: IntArray, *, most: int, least: float) -> tuple[IntArray, IntArray]:
    """Return for each word the nearest others of its group.

    Args:
        vectors: Shape (K, size), K at least 1.
        groups: Shape (K,).
        most: Maximum number of neighbors per word.
        least: Minimum cosine.

    Returns:
        (words, neighbors), each of shape (P,), ordered by word and falling cosine.
    """
    # The mean vector says nothing about any two words; in vectors from little text it is nearly everything (Mu and
    # Viswanath 2018, "All-but-the-top", section 2).
    own = vectors - vectors.mean(axis=0)
    unit = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found = [_nearest_in(np.flatnonzero(groups == group), unit, most, least) for group in np.unique(groups).tolist()]
    words, others = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(words, kind="stable")
    return words[order], others[order]


def _nearest_in(members: IntArray, unit: NDArray[np.float32], most: int, least: float) -> tuple[IntArray, IntArray]:
    own, most = unit[members], min(most, len(members) - 1)
    if not most:
        return members[:0], members[:0]
    words, others = [], []
    rows_at_once = max(1, _COMPARED_AT_ONCE // len(members))
    for low in range(0, len(members), rows_at_once):
        near = own[low : low + rows_at_once] @ own.T
        rows = np.arange(len(near))
        near[rows, low + rows] = -2.0  # no word is its own neighbor
        column = np.sort(np.argpartition(near, -most, axis=1)[:, -most:], axis=1)
        best = np.take_along_axis(near, column, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        column, best = np.take_along_axis(column, order, axis=1), np.take_along_axis(best, order, axis=1)
        row, place = np.nonzero(best >= least)
        words.append(members[low + row])
        others.append(members[column[row, place]])
    return np.concatenate(words), np.concatenate(others)
