"""The words that dropout's bits are made of: the same however many follow, and however many calls are made at once."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.kernels.dropout import DropoutKey, RandomWords, random_bits

NUMBERS = st.integers(0, 2**63 - 1)


def key_of(number: int) -> DropoutKey:
    return DropoutKey.on(torch.device("cpu"), number)


@given(number=NUMBERS, call=st.integers(0, 99), count=st.integers(1, 9000), more=st.integers(0, 9000))
def test_bits_do_not_hang_on_how_many_values_follow(number: int, call: int, count: int, more: int) -> None:
    # So a graph captured for more tokens drops what the batch itself would.
    few, many = (random_bits(torch.Size((size,)), key_of(number), call) for size in (count, count + more))
    assert torch.equal(few, many[:count])


@given(number=NUMBERS, shape=st.tuples(st.integers(1, 40), st.integers(1, 130)))
def test_words_have_a_row_for_every_2048_values(number: int, shape: tuple[int, int]) -> None:
    words = RandomWords.of(torch.Size(shape), key_of(number), 1)
    assert words.columns.shape == (512,)
    assert words.rows.shape == (-(-math.prod(shape) // 2048),)
    # Odd, so that a product loses no bit of either.
    assert bool((words.columns % 2 == 1).all())
    assert bool((words.rows % 2 == 1).all())


@given(number=NUMBERS, calls=st.integers(1, 9), most=st.integers(1, 9000), share=st.floats(0.001, 1))
def test_a_table_of_many_calls_gives_the_same_bits(number: int, calls: int, most: int, share: float) -> None:
    key = key_of(number)
    table = key.with_table(calls, most)
    assert key.table is None
    assert table.number == number
    shape = torch.Size((max(1, int(share * most)),))
    for call in range(calls):
        assert torch.equal(random_bits(shape, table, call), random_bits(shape, key, call))


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_limits_say_what_is_dropped_and_what_the_rest_is_scaled_by(rate: float) -> None:
    least, scale = RandomWords.limits(rate)
    bits = random_bits(torch.Size((1 << 16,)), key_of(3), 0).int()
    assert float((bits < least).double().mean()) == pytest.approx(rate, abs=0.01)
    assert scale == pytest.approx(1 / (1 - rate), rel=1e-4)
