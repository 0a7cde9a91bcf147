"""Ranges are copied to their positions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.flat_arrays import Runs, concatenated_ranges


@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=9),
    st.integers(0, 1000),
    st.sampled_from([np.bool_, np.uint16, np.int32]),
)
def test_ranges_are_copied_to_their_positions(sizes: list[int], seed: int, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array(sizes)
    source = rng.integers(0, 2 if dtype is np.bool_ else 99, 101).astype(dtype)
    starts = rng.integers(0, 102 - counts)
    gaps = rng.integers(0, 4, len(counts))
    targets = np.cumsum(gaps + counts) - counts
    expected = np.zeros(int((gaps + counts).sum()) + 3, np.int32)
    for start, target, count in zip(starts, targets, counts, strict=True):
        expected[target : target + count] = source[start : start + count]
    actual = np.zeros_like(expected)
    runs = Runs(starts, targets, counts)
    runs.copy(source, actual)
    assert actual.tolist() == expected.tolist()
    unpacked = np.zeros(len(expected), np.bool_)
    runs.unpack(np.packbits(source != 0, bitorder="little"), unpacked)
    assert unpacked.tolist() == (expected != 0).tolist()
    ranges = [start + i for start, count in zip(starts, counts, strict=True) for i in range(count)]
    assert concatenated_ranges(starts, counts).tolist() == ranges


def test_ranges_beyond_the_source_are_refused() -> None:
    runs, target = Runs(np.array([95]), np.array([0]), np.array([10])), np.empty(10, np.int32)
    with pytest.raises(IndexError):
        runs.copy(np.zeros(100, np.uint16), target)
