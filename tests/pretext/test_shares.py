"""Shares of a whole, and ids drawn without some."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.pretext.replacement.base import uniform_ids
from maskwright.pretext.shares import check_shares


def test_shares_that_add_up_pass_whatever_rounding_does() -> None:
    check_shares({"one": 1.0})
    check_shares({str(number): 0.1 for number in range(10)})
    check_shares({"a": 0.5, "b": 0.5 + 9e-7})


def test_shares_that_do_not_are_told_with_their_sum() -> None:
    message = "mask 0.8 + random 0.1 + keep 0.2 = 1.1; make them add up to 1"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_shares({"mask": 0.8, "random": 0.1, "keep": 0.2})
    with pytest.raises(ValueError, match="add up to 1"):
        check_shares({"a": 0.5, "b": 0.5 + 2e-6})


@given(st.integers(1, 30), st.sets(st.integers(0, 29), max_size=12))
def test_every_id_but_those_left_out_comes_up_alike(vocab_size: int, never: set[int]) -> None:
    never = {id for id in never if id < vocab_size}
    allowed = [id for id in range(vocab_size) if id not in never]
    # The middle of each of as many equal parts of [0, 1) as there are ids: each is hit once, in order.
    middles = (np.arange(len(allowed)) + 0.5) / max(1, len(allowed))
    assert uniform_ids(middles, vocab_size, never).tolist() == allowed
