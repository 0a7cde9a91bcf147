"""Word vectors and token vectors from the corpus; nearest neighbors by cosine among words of as many tokens.

Vectors are the truncated singular value decomposition of the positive pointwise mutual information of words and their
neighbors, with smoothed context counts (Levy, Goldberg and Dagan 2015, "Improving distributional similarity with
lessons learned from word embeddings").
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csr_array

# Window 2, not word2vec's 5: near words determine what can replace a word, far ones the topic (Levy and Goldberg 2014,
# "Dependency-based word embeddings", section 4).
_WINDOW, _SIZE, _CONTEXT_POWER = 2, 100, 0.75
_SEED = 1
LEARNING = [_WINDOW, _SIZE, _CONTEXT_POWER, _SEED]
"""Constants that a table learned from the corpus depends on."""
MAX_WORDS = 50_000
"""Maximum number of compared words, the most frequent; a second or two for each 20,000."""
TOKEN_VECTOR_SIZE = 128
"""Sizes 64 and 256 give about the same loss, and 256 takes 1.7 times as long (LOG.md)."""
TOKEN_VECTOR_SAMPLE = 8_000_000
"""Token vectors are learned from at most so many tokens of text; 32 M give about the same loss (LOG.md)."""
_POWER_ITERATIONS = 2
"""Of the randomized decomposition; five give about the same loss (LOG.md)."""


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
    followers = _followers(np.searchsorted(frequent, text), counts[text] >= min_count, sentence_ends, len(frequent))
    information = _positive_information((followers + followers.T).tocoo())
    # A word without any neighbor has no direction.
    kept = np.flatnonzero(chosen[frequent] & (np.diff(information.indptr) > 0))
    kept = np.sort(kept[np.argsort(-counts[frequent[kept]], kind="stable")][:MAX_WORDS])
    if not len(kept):
        return frequent[kept], np.empty((0, _SIZE), dtype=np.float32)
    vectors = TruncatedSVD(min(_SIZE, len(frequent)), random_state=_SEED).fit_transform(information)
    return frequent[kept], vectors[kept]


def token_vectors(ids: IntArray, sentence_ends: IntArray, vocab_size: int) -> NDArray[np.float32]:
    """Learn token vectors, for which neighbors to the left and to the right are different contexts.

    Order matters to a model that fills in tokens: a noun follows an article. The same text gives the same vectors.

    Args:
        ids: Shape (N,), running text.
        sentence_ends: Shape (S,), ascending: where each sentence ends.

    Returns:
        Shape (`vocab_size`, `TOKEN_VECTOR_SIZE`), the first columns the most important; zeros for a token without
        neighbors, and in the last columns if the text is too small for so many.
    """
    from scipy.sparse import hstack
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    vectors = np.zeros((vocab_size, TOKEN_VECTOR_SIZE), dtype=np.float32)
    followers = _followers(ids, np.ones(len(ids), dtype=np.bool_), sentence_ends, vocab_size)
    if not followers.nnz:
        return vectors
    information = _positive_information(hstack([followers, followers.T], format="coo"))
    size = min(TOKEN_VECTOR_SIZE, vocab_size)
    with threadpool_limits(1):  # The number of threads would change the last bits.
        words, strengths, _ = randomized_svd(information, size, n_iter=_POWER_ITERATIONS, random_state=_SEED)
    # The singular values' square root makes better vectors than the values (Levy et al. 2015, eigenvalue weighting).
    known = np.diff(information.indptr) > 0
    vectors[:, :size] = known[:, None] * words * np.sqrt(strengths)
    return vectors


def _followers(words: IntArray, counted: BoolArray, sentence_ends: IntArray, size: int) -> "csr_array":
    """Count how often word j follows word i within the window and a sentence. Shape (size, size).

    Args:
        words: Shape (N,), numbers below `size`; any number where a word is not counted.
        counted: Shape (N,).
    """
    from scipy.sparse import coo_array, csr_array

    sentences = np.searchsorted(sentence_ends, np.arange(len(words)), side="right")
    followers = csr_array((size, size), dtype=np.float32)
    for gap in range(1, _WINDOW + 1):
        near = np.flatnonzero(counted[:-gap] & counted[gap:] & (sentences[:-gap] == sentences[gap:]))
        # Near neighbors weigh more, as in word2vec, where the window is sampled from 1 to its maximum.
        weights = np.full(len(near), 1 - (gap - 1) / _WINDOW, dtype=np.float32)
        followers += coo_array((weights, (words[near], words[near + gap])), shape=(size, size)).tocsr()
    return followers


def _positive_information(counts: "coo_array") -> "csr_array":
    """Return the positive pointwise mutual information of words (rows) and contexts (columns)."""
    from scipy.sparse import coo_array

    of_word, as_context = counts.sum(axis=1), counts.sum(axis=0) ** _CONTEXT_POWER
    row, column = counts.coords
    information = np.log(counts.data / of_word[row]) - np.log(as_context[column] / as_context.sum())
    positive = information > 0
    entries = (information[positive].astype(np.float32), (row[positive], column[positive]))
    return coo_array(entries, shape=counts.shape).tocsr()


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
