"""Words by the hash of their tokens: what is found, and what is not."""

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.similar_words import SimilarWords, word_hashes

words = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), min_size=1, max_size=20)


def hash_of(*word: int) -> np.uint64:
    return word_hashes(np.array(word), np.zeros(1, dtype=np.int64))[0]


def small_table() -> SimilarWords:
    """(7) is similar to (8) and (9), (7, 8) to (5, 5); random words are (9) and (10, 11), (12, 13)."""
    hashes = np.array([hash_of(7), hash_of(7, 8)])
    order = np.argsort(hashes)
    return SimilarWords(
        ids=np.array([8, 9, 5, 5, 9, 10, 11, 12, 13], dtype=np.int32),
        hashes=hashes[order],
        lengths=np.array([1, 2])[order],
        firsts=np.array([0, 2])[order],
        counts=np.array([2, 1])[order],
        random_firsts=np.array([4, 4, 5]),
        random_counts=np.array([0, 1, 2]),
    )


@given(words)
def test_words_share_a_hash_only_if_they_are_the_same(some: list[tuple[int, ...]]) -> None:
    lengths = np.array([len(word) for word in some])
    hashes = word_hashes(np.array([id for word in some for id in word]), np.cumsum(lengths) - lengths)
    assert len(set(hashes.tolist())) == len(set(some))
    assert hashes.tolist() == [hash_of(*word) for word in some]


def test_a_word_is_found_by_its_tokens_and_its_length() -> None:
    table = small_table()
    queries = [(7, 8), (7,), (8, 7), (9,), (8,)]
    actual = table.similar_to(np.array([hash_of(*word) for word in queries]), np.array([len(word) for word in queries]))
    assert actual.counts.tolist() == [1, 2, 0, 0, 0]
    assert table.ids[actual.firsts[0] :][:2].tolist() == [5, 5]
    # A hash of a word of another length, if that should ever happen, is no word of the table.
    assert table.similar_to(np.array([hash_of(7)]), np.array([2])).counts.tolist() == [0]


def test_an_empty_table_holds_nothing() -> None:
    full = small_table()
    table = SimilarWords(**{each.name: getattr(full, each.name)[:0] for each in fields(full)})
    assert table.similar_to(np.array([hash_of(7)]), np.array([1])).counts.tolist() == [0]
    assert table.of_length(np.array([0, 1, 5])).counts.tolist() == [0, 0, 0]
