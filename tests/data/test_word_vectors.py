"""Vectors of tokens: tokens that stand in the same places are near each other, and left is not right."""

import numpy as np
from threadpoolctl import threadpool_limits

from maskwright.core.types import IntArray
from maskwright.data.words.word_vectors import TOKEN_VECTOR_SIZE, token_vectors

SIZE = 300
UNSEEN, ALONE = 298, 299


def text(sentences: int = 20_000) -> tuple[IntArray, IntArray]:
    """Sentences "article noun verb article noun"; numbers of one kind are a range of tokens."""
    draw = np.random.default_rng(0).integers
    kinds = ((0, 5), (5, 100), (100, 200), (0, 5), (5, 100))
    ids = np.stack([draw(*kind, sentences) for kind in kinds], axis=1).ravel()
    # A sentence of one token, which has no neighbor.
    return np.append(ids, ALONE), np.append(np.arange(5, len(ids) + 1, 5), len(ids) + 1)


def similarity(vectors: np.ndarray, first: slice, second: slice) -> float:
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    return float((rows[first] @ rows[second].T).mean())


def test_tokens_with_the_same_neighbors_are_near_each_other() -> None:
    vectors = token_vectors(*text(), SIZE)
    assert (vectors.shape, vectors.dtype) == ((SIZE, TOKEN_VECTOR_SIZE), np.float32)
    articles, nouns, verbs = slice(0, 5), slice(5, 100), slice(100, 200)
    for kind, others in ((articles, (nouns, verbs)), (nouns, (articles, verbs)), (verbs, (articles, nouns))):
        assert similarity(vectors, kind, kind) > 3 * max(similarity(vectors, kind, other) for other in others)


def test_tokens_without_neighbors_have_no_vector() -> None:
    vectors = token_vectors(*text(100), SIZE)
    assert not vectors[[UNSEEN, ALONE]].any()
    assert vectors[:5].any(axis=1).all()
    assert not token_vectors(np.arange(9), np.arange(1, 10), SIZE).any()  # Sentences of one token.
    assert not token_vectors(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), SIZE).any()


def test_left_and_right_neighbors_differ() -> None:
    """Tokens 0 and 1 have the same neighbors, the one before them and the other after them."""
    ids = np.array([[2, 0], [3, 0], [1, 2], [1, 3]] * 50).ravel()
    vectors = token_vectors(ids, np.arange(2, len(ids) + 1, 2), SIZE)
    assert similarity(vectors, slice(2, 3), slice(3, 4)) > 0.9
    assert similarity(vectors, slice(0, 1), slice(1, 2)) < 0.5


def test_the_number_of_threads_changes_nothing() -> None:
    made = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            made.append(token_vectors(*text(2000), SIZE))
    assert np.array_equal(*made)


def test_a_small_vocabulary_leaves_columns_empty() -> None:
    ids = np.random.default_rng(0).integers(0, 20, 5000)
    vectors = token_vectors(ids, np.arange(10, 5001, 10), 20)
    assert vectors[:, :20].any()
    assert not vectors[:, 20:].any()
