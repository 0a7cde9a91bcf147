import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.training.packing import pack

lengths_in_rows = st.integers(4, 200).flatmap(
    lambda row: st.tuples(st.just(row), st.lists(st.integers(1, row), min_size=1, max_size=60))
)


@given(lengths_in_rows)
def test_packing_is_a_partition_without_overlap(case: tuple[int, list[int]]) -> None:
    row_length, lengths = case
    packing = pack(np.array(lengths), row_length)
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))
    filled = np.zeros((packing.num_rows, row_length), dtype=int)
    for sequence, row, offset in zip(packing.order, packing.rows, packing.offsets, strict=True):
        assert offset + lengths[sequence] <= row_length
        filled[row, offset : offset + lengths[sequence]] += 1
    assert filled.max() == 1
    assert (filled.sum(axis=1) > 0).all()
    assert (np.diff(packing.rows) >= 0).all()


@given(lengths_in_rows)
def test_packing_equals_best_fit_one_sequence_after_another(case: tuple[int, list[int]]) -> None:
    row_length, lengths = case
    room: list[int] = []  # of the rows, the one that was last put into behind others with as much
    place: dict[int, tuple[int, int]] = {}
    number: list[int] = []
    begun = 0
    for sequence in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        fitting = [each for each in room if each >= lengths[sequence]]
        if fitting:
            at = len(room) - 1 - room[::-1].index(min(fitting))
            row, left = number.pop(at), room.pop(at)
        else:
            row, left, begun = begun, row_length, begun + 1
        place[sequence] = (row, row_length - left)
        number.append(row)
        room.append(left - lengths[sequence])
    lying = sorted(place, key=lambda each: place[each])
    packing = pack(np.array(lengths), row_length)
    assert packing.order.tolist() == lying
    found = list(zip(packing.rows.tolist(), packing.offsets.tolist(), strict=True))
    assert found == [place[each] for each in lying]
    assert packing.num_rows == begun


@given(lengths_in_rows)
def test_packing_never_uses_twice_the_rows_needed(case: tuple[int, list[int]]) -> None:
    row_length, lengths = case
    # Any two rows of a best-fit packing hold more than one row's worth together.
    assert pack(np.array(lengths), row_length).num_rows <= 2 * (sum(lengths) // row_length + 1)


def test_packing_fills_natural_lengths_almost_wholly() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(3.8, 0.7, 4000), 4, 128).astype(int)
    packing = pack(lengths, 128)
    assert lengths.sum() / (packing.num_rows * 128) > 0.99


@given(lengths_in_rows)
def test_a_stream_holds_the_sequences_as_they_lie_and_nothing_between(case: tuple[int, list[int]]) -> None:
    row_length, given_lengths = case
    lengths = np.array(given_lengths)
    packing = pack(lengths, row_length)
    starts, slots = packing.in_stream(lengths, row_length)
    assert (np.diff(slots) > 0).all()
    assert sorted(starts.tolist()) == (np.cumsum(lengths[packing.order]) - lengths[packing.order]).tolist()
    for sequence, row, offset in zip(packing.order, packing.rows, packing.offsets, strict=True):
        own = slots[starts[sequence] : starts[sequence] + lengths[sequence]]
        assert own.tolist() == list(range(row * row_length + offset, row * row_length + offset + lengths[sequence]))


def test_sequences_longer_than_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 9 tokens do not fit rows of 8"):
        pack(np.array([1, 9]), 8)
