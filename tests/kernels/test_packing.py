import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.kernels.packing import pack

lengths_in_rows = st.integers(4, 200).flatmap(
    lambda row: st.tuples(st.just(row), st.lists(st.integers(1, row), min_size=1, max_size=60))
)


@given(lengths_in_rows)
def test_no_sequences_overlap_or_cross_the_end_of_a_row(case: tuple[int, list[int]]) -> None:
    row_length, lengths = case
    first_slots, num_rows = pack(np.array(lengths), row_length)
    filled = np.zeros((num_rows, row_length), dtype=int)
    for first, length in zip(first_slots.tolist(), lengths, strict=True):
        row, offset = divmod(first, row_length)
        assert offset + length <= row_length
        filled[row, offset : offset + length] += 1
    assert filled.max() == 1
    assert (filled.sum(axis=1) > 0).all()
    # Any two rows of a best-fit packing hold more than one row's worth together.
    assert num_rows <= 2 * (sum(lengths) // row_length + 1)


def test_packing_fills_natural_lengths_almost_entirely() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(3.8, 0.7, 4000), 4, 128).astype(int)
    assert lengths.sum() / (pack(lengths, 128)[1] * 128) > 0.99


def test_sequences_longer_than_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 9 tokens do not fit rows of 8"):
        pack(np.array([1, 9]), 8)
