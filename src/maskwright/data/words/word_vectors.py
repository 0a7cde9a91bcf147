"""Word vectors from the corpus, and nearest neighbors by cosine among words of the same number of tokens.

Vectors are the truncated singular value decomposition of the positive pointwise mutual information of words and their
neighbors, with smoothed context counts (Levy, Goldberg and Dagan 2015, "Improving distributional similarity with
lessons learned from word embeddings").
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Window 2, not word2vec's 5: near words determine what can replace a word, far ones the topic (Levy and Goldberg 2014,
# "Dependency-based word embeddings", section 4).
_WINDOW, _SIZE, _CONTEXT_POWER = 2, 100, 0.75
_SEED = 1
LEARNING = [_WINDOW, _SIZE, _CONTEXT_POWER, _SEED]
"""Constants that a table learned from the corpus depends on."""
MAX_WORDS = 50_000
"""Maximum number of compared words, the most frequent; a second or two for each 20,000."""


def learn_vectors(
    text: IntArray, sentence_ends: IntArray, chosen: BoolArray, min_count: int
) -> tuple[IntArray, NDArray[np.float32]]:
    """Learn vectors of words; the same text gives the same vectors.

    Args:
        text: Shape (N,), words as numbers.
        sentence_ends: Shape (S,), ascending: where each sentence ends.
        chosen: Shape (W,), the words whose vectors are wanted; at least one occurs `min_count` times.

    Returns:
        (numbers of the chosen frequent words, shape (K,), ascending; vectors, shape (K, size)), K at most `MAX_WORDS`.
    """
    from sklearn.decomposition import TruncatedSVD

    counts = np.bincount(text, minlength=len(chosen))
    frequent = np.flatnonzero(counts >= min_count)
    information = _positive_information(np.searchsorted(frequent, text), counts[text] >= min_count, sentence_ends)
    # A word without any neighbor has no direction.
    kept = np.flatnonzero(chosen[frequent] & (np.diff(information.indptr) > 0))
    kept = np.sort(kept[np.argsort(-counts[frequent[kept]], kind="stable")][:MAX_WORDS])
    if not len(kept):
        return frequent[kept], np.empty((0, _SIZE), dtype=np.float32)
    vectors = TruncatedSVD(min(_SIZE, len(frequent)), random_state=_SEED).fit_transform(information)
    return frequent[kept], vectors[kept]


def _positive_information(words: IntArray, frequent: BoolArray, sentence_ends: IntArray) -> "csr_array":
    """Return the positive pointwise mutual information of the K frequent words. Shape (K, K).

    Args:
        words: Shape (N,), the numbers of the words below K; any number where a word is not frequent.
        frequent: Shape (N,).
    """
    from scipy.sparse import coo_array, csr_array  # 40 MB, for recipes with similar words only.

    size = int(words[frequent].max()) + 1
    sentences = np.searchsorted(sentence_ends, np.arange(len(words)), side="right")
    pairs = csr_array((size, size), dtype=np.float32)
    for gap in range(1, _WINDOW + 1):
        near = np.flatnonzero(frequent[:-gap] & frequent[gap:] & (sentences[:-gap] == sentences[gap:]))
        # Near neighbors weigh more, as in word2vec, where the window is sampled from 1 to its maximum.
        weights = np.full(len(near), 1 - (gap - 1) / _WINDOW, dtype=np.float32)
        pairs += coo_array((weights, (words[near], words[near + gap])), shape=(size, size)).tocsr()
    counts = (pairs + pairs.T).tocoo()
    of_word = counts.sum(axis=1)
    as_context = of_word**_CONTEXT_POWER
    row, column = counts.coords
    information = np.log(counts.data / of_word[row]) - np.log(as_context[column] / as_context.sum())
    positive = information > 0
    entries = (information[positive].astype(np.float32), (row[positive], column[positive]))
    return coo_array(entries, shape=(size, size)).tocsr()


def nearest(vectors: NDArray[np.float32], groups: IntArray, *, most: int, least: float) -> tuple[IntArray, IntArray]:
    """Return for each word the nearest others of its group.

    Args:
        vectors: Shape (K, size).
        groups: Shape (K,).
        most: Maximum number of neighbors per word.
        least: Minimum cosine.

    Returns:
        (words, neighbors), each of shape (P,), ordered by word and falling cosine.
    """
    from sklearn.neighbors import NearestNeighbors

    # The mean vector says nothing about any two words (Mu and Viswanath 2018, "All-but-the-top", section 2).
    centered = vectors - vectors.sum(axis=0) / max(1, len(vectors))
    words, neighbors = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        if (count := min(most, len(members) - 1)) > 0:
            search = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(centered[members])
            distances, indices = search.kneighbors()
            row, column = np.nonzero(1 - distances >= least)
            words.append(members[row])
            neighbors.append(members[indices[row, column]])
    matched, others = np.concatenate(words), np.concatenate(neighbors)
    order = np.argsort(matched, kind="stable")
    return matched[order], others[order]
