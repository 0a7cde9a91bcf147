"""Filling up: few numbers of rows, nothing read twice, nothing lost."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.row_counts import MULTIPLE, filled_up, rounded_up, with_unread


@given(st.integers(0, 10_000))
def test_numbers_are_rounded_up_to_the_next_multiple(count: int) -> None:
    assert rounded_up(count) % MULTIPLE == 0
    assert 0 <= rounded_up(count) - count < max(MULTIPLE, count / 64 + 1)


def test_there_are_64_numbers_up_to_each_power_of_two() -> None:
    for power in (1024, 2048, 4096):
        assert len({rounded_up(count) for count in range(power + 1, 2 * power + 1)}) == 64


@given(st.lists(st.integers(0, 99), max_size=60))
def test_offsets_are_followed_by_the_last_of_them(places: list[int]) -> None:
    filled = filled_up(torch.tensor(places, dtype=torch.int64)).tolist()
    assert len(filled) == rounded_up(len(places))
    assert filled[: len(places)] == places
    assert set(filled[len(places) :]) <= set(places[-1:])


@given(st.integers(1, 120), st.data())
def test_unread_slots_are_added_once_each_and_in_order(num_slots: int, data: st.DataObject) -> None:
    read = sorted(data.draw(st.sets(st.integers(0, num_slots - 1))))
    found = with_unread(torch.tensor(read, dtype=torch.int64), num_slots)
    if rounded_up(len(read)) >= num_slots:
        assert found is None
        return
    assert found is not None
    slots = found.tolist()
    assert slots == sorted(set(slots))
    assert set(read) <= set(slots) <= set(range(num_slots))
    assert len(slots) == rounded_up(len(read))
