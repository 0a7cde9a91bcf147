"""Nearest words by the cosine of their vectors, among words of the same number of tokens."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import IntArray

MAX_WORDS = 50_000
"""Words compared with each other at most, the commonest: a second or two of comparing for each 20,000."""

_COMPARED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which words are similar to which, ordered by word and then from the most similar one on.

    Attributes:
        words: Shape (P,), numbers of words, ascending.
        ids: Shape (sum of lengths,), the tokens of what is similar to each, one after another; as many as the word has.
        similarities: Shape (P,), float32.
    """

    words: IntArray
    ids: IntArray
    similarities: NDArray[np.float32]


def nearest(
    vectors: NDArray[np.float32], lengths: IntArray, *, most: int, least: float
) -> tuple[IntArray, IntArray, NDArray[np.float32]]:
    """Return for each word the nearest others of its length.

    Args:
        vectors: Shape (K, size).
        lengths: Shape (K,), tokens of each word; only words of equal length are compared.
        most: Neighbours of a word at most.
        least: Least cosine.

    Returns:
        (words, neighbours, cosines), each of shape (P,), ordered by word and falling cosine.
    """
    # What all words have in common says nothing about any two; in vectors learnt from little text it is nearly
    # everything (Mu and Viswanath 2018, "All-but-the-top", section 2).
    own = vectors - vectors.mean(axis=0)
    unit = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    found = [
        _nearest_in(np.flatnonzero(lengths == length), unit, most, least) for length in np.unique(lengths).tolist()
    ]
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
        near[rows, low + rows] = -2.0  # no word is its own neighbour
        column = np.sort(np.argpartition(near, -most, axis=1)[:, -most:], axis=1)
        best = np.take_along_axis(near, column, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        column, best = np.take_along_axis(column, order, axis=1), np.take_along_axis(best, order, axis=1)
        row, place = np.nonzero(best >= least)
        words.append(members[low + row])
        others.append(members[column[row, place]])
        cosines.append(best[row, place])
    return np.concatenate(words), np.concatenate(others), np.concatenate(cosines)
