import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.flat_arrays import concatenated_ranges


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 70)), max_size=9))
def test_ranges_follow_each_other(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    expected = [number for start, length in ranges for number in range(start, start + length)]
    assert concatenated_ranges(starts, lengths).tolist() == expected
