"""Words by the hash of their tokens: what is found, and what is not."""

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.similar_words import SimilarWords, word_hashes
from tests.pretext.similar_tables import hash_of, table_of

words = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), min_size=1, max_size=20)


TABLE = table_of({(7,): [(8,), (9,)], (7, 8): [(5, 5)]}, [(9,), (10, 11), (12, 13)])


@given(words)
def test_words_share_a_hash_only_if_they_are_the_same(some: list[tuple[int, ...]]) -> None:
    lengths = np.array([len(word) for word in some])
    hashes = word_hashes(np.array([id for word in some for id in word]), np.cumsum(lengths) - lengths)
    assert len(set(hashes.tolist())) == len(set(some))
    assert hashes.tolist() == [hash_of(word) for word in some]


def test_a_word_is_found_by_its_tokens_and_its_length() -> None:
    queries = [(7, 8), (7,), (8, 7), (9,), (8,)]
    actual = TABLE.similar_to(np.array([hash_of(word) for word in queries]), np.array([len(word) for word in queries]))
    assert actual.counts.tolist() == [1, 2, 0, 0, 0]
    assert TABLE.ids[actual.firsts[0] :][:2].tolist() == [5, 5]
    # A hash of a word of another length, if that should ever happen, is no word of the table.
    assert TABLE.similar_to(np.array([hash_of((7,))]), np.array([2])).counts.tolist() == [0]


def test_an_empty_table_holds_nothing() -> None:
    table = SimilarWords(**{each.name: getattr(TABLE, each.name)[:0] for each in fields(TABLE)})
    assert table.similar_to(np.array([hash_of((7,))]), np.array([1])).counts.tolist() == [0]
    assert table.of_length(np.array([0, 1, 5])).counts.tolist() == [0, 0, 0]
