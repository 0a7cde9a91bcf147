"""The values that travel: their derived facts agree with what they are derived from."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.types import Documents, Instances, Plan, Selection, Targets


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


def test_picked_documents_keep_their_places():
    picked = documents([[3, 4], [5], [1, 1, 1]]).pick(np.array([2, 0]))
    assert (len(picked), picked.num_tokens) == (2, 10)
    assert picked.bounds(picked.first).tolist() == [12, 0]
    assert documents([[3], [4]]).pick(np.array([False, True])).num_tokens == 4


def test_no_documents_have_no_tokens():
    nothing = Documents(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    assert (len(nothing), nothing.num_tokens) == (0, 0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 5)), max_size=20))
def test_selection_lists_the_tokens_of_its_units(units):
    # Units of 1 to 4 tokens with gaps of 0 to 5 between them.
    starts, ends, expected, place = [], [], [], 0
    for number, (length, gap) in enumerate(units):
        place += gap
        starts.append(place)
        ends.append(place + length)
        expected += [(place + offset, number) for offset in range(length)]
        place += length
    selection = Selection(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
    found = list(zip(selection.positions.tolist(), selection.units.tolist(), strict=True))
    assert found == expected


def test_instances_number_their_tokens():
    zeros = np.zeros(7, dtype=np.int32)
    instances = Instances(
        ids=zeros,
        segment_ids=zeros.astype(np.int8),
        word_starts=zeros.astype(bool),
        special=zeros.astype(bool),
        cu_seqlens=np.array([0, 3, 3, 7]),
        pair_labels=np.zeros(3, dtype=np.int8),
    )
    assert len(instances) == 3
    assert instances.lengths.tolist() == [3, 0, 4]
    assert instances.sequence_ids.tolist() == [0, 0, 0, 2, 2, 2, 2]


def test_plan_rows_are_picked_in_order():
    columns = {name: np.arange(4) * 10 for name in ("first_start", "first_end", "second_start", "second_end")}
    plan = Plan(**columns, pair_labels=np.array([0, 1, -1, 0]))
    picked = plan.rows(np.array([2, 0]))
    assert (len(plan), len(picked)) == (4, 2)
    assert picked.first_end.tolist() == [20, 0]
    assert picked.pair_labels.tolist() == [-1, 0]


def test_targets_move():
    targets = Targets(positions=np.array([1, 5]), labels=np.array([7, 8]), extra={"left": np.array([0, 4])})
    moved = targets.moved(10)
    assert moved.positions.tolist() == [11, 15]
    assert moved.count == targets.count == 2
    assert moved.labels is targets.labels
