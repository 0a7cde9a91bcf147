"""Word vectors from the corpus (skip-gram with negative sampling, Mikolov et al. 2013), and nearest neighbors by
cosine among words of the same number of tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import IntArray
from maskwright.data.libraries import imported
from maskwright.data.progress import Progress
from maskwright.data.words.similar_words.counting import CountedWords

MAX_WORDS = 50_000
"""Maximum number of compared words, the most frequent; a second or two for each 20,000."""

_COMPARED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Pairs:
    """Similar words, ordered by word and falling similarity.

    Attributes:
        words: Shape (P,), numbers of words, ascending.
        ids: Shape (sum of lengths,), the tokens of the similar words, one after another.
        similarities: Shape (P,), float32.
    """

    words: IntArray
    ids: IntArray
    similarities: NDArray[np.float32]


def nearest(
    vectors: NDArray[np.float32], groups: IntArray, *, most: int, least: float
) -> tuple[IntArray, IntArray, NDArray[np.float32]]:
    """Return for each word the nearest others of its group.

    Args:
        vectors: Shape (K, size).
        groups: Shape (K,).
        most: Maximum number of neighbors per word.

    Returns:
        (words, neighbors, cosines), each of shape (P,), ordered by word and falling cosine.
    """
    # The mean vector says nothing about any two words; in vectors from little text it is nearly everything (Mu and
    # Viswanath 2018, "All-but-the-top", section 2).
    own = vectors - vectors.mean(axis=0)
    unit = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found = [_nearest_in(np.flatnonzero(groups == group), unit, most, least) for group in np.unique(groups).tolist()]
    words, others, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(words, kind="stable")
    return words[order], others[order], cosines[order]


def _nearest_in(
    members: IntArray, unit: NDArray[np.float32], most: int, least: float
) -> tuple[IntArray, IntArray, NDArray[np.float32]]:
    own, most = unit[members], min(most, len(members) - 1)
    if not most:
        return members[:0], members[:0], np.empty(0, dtype=np.float32)
    words, others, cosines = [], [], []
    for low in range(0, len(members), max(1, _COMPARED_AT_ONCE // len(members))):
        near = own[low : low + max(1, _COMPARED_AT_ONCE // len(members))] @ own.T
        rows = np.arange(len(near))
        near[rows, low + rows] = -2.0  # no word is its own neighbor
        column = np.sort(np.argpartition(near, -most, axis=1)[:, -most:], axis=1)
        best = np.take_along_axis(near, column, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        column, best = np.take_along_axis(column, order, axis=1), np.take_along_axis(best, order, axis=1)
        row, place = np.nonzero(best >= least)
        words.append(members[low + row])
        others.append(members[column[row, place]])
        cosines.append(best[row, place])
    return np.concatenate(words), np.concatenate(others), np.concatenate(cosines)


# Window 2, not word2vec's 5: near words determine what can replace a word, far ones the topic (Levy and Goldberg 2014,
# "Dependency-based word embeddings", section 4). The rest is word2vec's default for skip-gram.
SETTINGS = {"vector_size": 100, "window": 2, "sg": 1, "negative": 5}
# A small text gets more passes. Measured on 0.4 M Chinese words: after 5 passes all vectors still point the same way,
# after 30 the neighbors of Beijing are other cities. On 4 M words 3 passes are enough.
READ_WORDS, MIN_PASSES, MAX_PASSES = 12_000_000, 3, 30
_SEED = 1
LEARNING = [SETTINGS, READ_WORDS, MIN_PASSES, MAX_PASSES, _SEED]
"""Constants that a table learned from the corpus depends on."""

_SENTENCES_AT_ONCE = 4096
# gensim truncates longer sentences.
_MAX_WORDS = 10_000


def require_gensim() -> Any:
    """Import the library that learns word vectors.

    Raises:
        DataError: If it is missing or cannot be loaded.
    """
    return imported(
        "gensim",
        package="gensim",
        purpose="learning similar words from the corpus",
        todo="Run `pip install -c constraints.txt -e '.[words]'`, or take them from a file of synonyms or word "
        "vectors: --set replacement.table.source=FILE",
    )


def learn_vectors(words: CountedWords, min_count: int, progress: Progress) -> tuple[IntArray, NDArray[np.float32]]:
    """Learn a vector for each ordinary frequent word; the same text gives the same vectors.

    Returns:
        (numbers of words, shape (K,), ascending; vectors, shape (K, size)), K at most `MAX_WORDS`.

    Raises:
        DataError: If gensim is missing or cannot be loaded.
    """
    gensim = require_gensim()
    frequent = words.counts >= min_count
    if not (frequent & words.ordinary).any():
        return np.empty(0, dtype=np.int64), np.empty((0, int(SETTINGS["vector_size"])), dtype=np.float32)
    passes = min(max(round(READ_WORDS / len(words.running)), MIN_PASSES), MAX_PASSES)
    # One worker: two race for the weights, which makes runs differ.
    model = gensim.models.Word2Vec(
        _Sentences(words, passes + 1, progress),  # words are counted in one more pass
        min_count=min_count,
        epochs=passes,
        workers=1,
        seed=_SEED,
        **SETTINGS,
    )
    numbers = np.array([int(name) for name in model.wv.index_to_key])
    # gensim orders words by falling count, so the most frequent come first.
    chosen = np.flatnonzero(words.ordinary[numbers])[:MAX_WORDS]
    chosen = chosen[np.argsort(numbers[chosen])]
    return numbers[chosen], model.wv.vectors[chosen]


class _Sentences:
    """The text as lists of words, each written as its number, for gensim's several passes."""

    def __init__(self, words: CountedWords, passes: int, progress: Progress) -> None:
        self._words, self._passes, self._progress = words, passes, progress
        self._names = np.array([str(number) for number in range(len(words))], dtype=object)
        self._pass = 0

    def __iter__(self) -> Iterator[list[str]]:
        ends = self._words.sentence_ends
        total = self._passes * len(ends)
        done = self._pass * len(ends)
        self._pass += 1
        for low in range(0, len(ends), _SENTENCES_AT_ONCE):
            high = min(low + _SENTENCES_AT_ONCE, len(ends))
            first = int(ends[low - 1]) if low else 0
            names: list[str] = self._names[self._words.running[first : ends[high - 1]]].tolist()
            begin = 0
            for end in (ends[low:high] - first).tolist():
                for piece in range(begin, end, _MAX_WORDS):
                    yield names[piece : min(piece + _MAX_WORDS, end)]
                begin = end
            self._progress("learning similar words", min(done + high, total), total)
