"""The values that travel: their derived facts agree with what they are derived from."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.types import Documents, Selection


def documents(lengths):
    """Documents whose sentences have the given numbers of tokens."""
    last = np.cumsum([len(document) for document in lengths])
    ends = np.cumsum([length for document in lengths for length in document])
    return Documents(ends, np.concatenate([[0], last[:-1]]), last)


def test_documents_know_their_tokens():
    three = documents([[3, 4], [5], [1, 1, 1]])
    assert len(three) == 3
    assert three.num_tokens == 15
    assert three.bounds(three.first).tolist() == [0, 7, 12]
    assert three.bounds(three.last).tolist() == [7, 12, 15]
    assert three.bounds(np.array([1, 4])).tolist() == [3, 13]


def test_picked_documents_keep_their_positions():
    picked = documents([[3, 4], [5], [1, 1, 1]]).pick(np.array([2, 0]))
    assert (len(picked), picked.num_tokens) == (2, 10)
    assert picked.bounds(picked.first).tolist() == [12, 0]
    assert documents([[3], [4]]).pick(np.array([False, True])).num_tokens == 4


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=20))
def test_selection_lists_the_tokens_of_its_units(units):
    # Units of 1 to 4 tokens with gaps of 0 to 5 between them.
    starts, ends, expected, position = [], [], [], 0
    for number, (length, gap) in enumerate(units):
        position += gap
        starts.append(position)
        ends.append(position + length)
        expected += [(position + offset, number) for offset in range(length)]
        position += length
    selection = Selection(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
    actual = list(zip(selection.positions.tolist(), selection.units.tolist(), strict=True))
    assert actual == expected
