"""Windows cover texts and overlap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.ranges import cut_windows, ranges_of


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=10),
    st.none() | st.integers(1, 30),
)
def test_windows_cover_each_text_without_gaps(texts: list[tuple[int, int]], stride: int | None) -> None:
    lengths, longest = np.array(texts).T
    ranges = ranges_of(lengths)
    of_text, windows = cut_windows(ranges, longest, stride)
    assert (np.diff(of_text) >= 0).all()
    for text, (length, most) in enumerate(texts):
        of_one = windows.pick(of_text == text)
        assert (of_one.lengths <= most).all()
        assert (of_one.lengths[:-1] == most).all()
        assert of_one.starts[0] == ranges.starts[text]
        assert of_one.ends[-1] == ranges.ends[text]
        assert (of_one.starts[1:] <= of_one.ends[:-1]).all()
        assert (len(of_one.starts) == 1) == (length <= most)


@pytest.mark.parametrize(("longest", "starts"), [(8, [0, 6, 12]), (4, [0, 3, 6, 9, 12, 15])])
def test_a_window_repeats_a_quarter_of_the_one_before(longest: int, starts: list[int]) -> None:
    _, windows = cut_windows(ranges_of(np.array([19])), np.array([longest]))
    assert windows.starts.tolist() == starts
