"""What our C code does with flat batches is what NumPy does, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.core.flat_arrays import CODE, Runs, bits_everywhere, listed, put_below
from maskwright.core.own_code import allowed
from maskwright.core.randomness import Draws, integer_key, integer_keys
from maskwright.core.types import Selection

lengths = st.lists(st.integers(0, 70), min_size=1, max_size=9)


@pytest.fixture(autouse=True, scope="module")
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


def draws_for(count: int, seed: int) -> Draws:
    rng = np.random.default_rng(seed)
    return Draws(seed, rng.integers(0, 9, count), rng.integers(0, 1 << 50, count))


@settings(deadline=None)
@given(lengths, st.integers(0, 1000))
def test_numbers_of_all_tokens_and_of_some_are_those_of_the_keys(sizes: list[int], seed: int) -> None:
    cu_seqlens, draws = np.concatenate([[0], np.cumsum(sizes)]), draws_for(len(sizes), seed)
    total = int(cu_seqlens[-1])
    tokens = np.flatnonzero(np.random.default_rng(seed).random(total) < 0.4)
    sequences = np.repeat(np.arange(len(sizes)), sizes)
    everywhere = draws.bits_at("a purpose", sequences, np.arange(total) - cu_seqlens[sequences])
    some = draws.uniform_at("a purpose", sequences[tokens], tokens - cu_seqlens[sequences[tokens]])
    for ours in (True, False):
        with allowed(ours):
            assert draws.bits_everywhere("a purpose", cu_seqlens).tolist() == everywhere.tolist()
            assert draws.uniform_of("a purpose", cu_seqlens, tokens).tolist() == some.tolist()


@settings(deadline=None)
@given(lengths, st.integers(0, 1000), st.sampled_from([np.bool_, np.int8, np.uint16, np.int32, np.float64]))
def test_runs_are_copied_to_their_places(sizes: list[int], seed: int, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array(sizes)
    source = rng.integers(0, 2 if dtype is np.bool_ else 99, 100).astype(dtype)
    starts = rng.integers(0, 101 - counts)
    gaps = rng.integers(0, 4, len(counts))
    places = np.cumsum(gaps + counts) - counts
    expected = np.zeros(int((gaps + counts).sum()) + 3, dtype)
    for start, place, count in zip(starts, places, counts, strict=True):
        expected[place : place + count] = source[start : start + count]
    for ours in (True, False):
        found = np.zeros_like(expected)
        with allowed(ours):
            Runs(starts, places, counts).copy(source, found)
            numbers = listed(starts, counts)
        assert numbers.tolist() == [
            start + i for start, count in zip(starts, counts, strict=True) for i in range(count)
        ]
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("ours", [True, False])
def test_values_of_another_type_and_strided_ones_are_copied_too(ours: bool) -> None:
    found = np.zeros(4, np.int32)
    with allowed(ours):
        runs = Runs(np.array([1, 0]), np.array([0, 2]), np.array([2, 2]))
        runs.copy(np.arange(10, dtype=np.int64)[::3], found)
        assert found.tolist() == [3, 6, 0, 3]
        Runs(*np.zeros((3, 0), dtype=np.int64)).copy(found, found)


@pytest.mark.parametrize("run", [(-1, 0, 2), (3, 0, 2), (0, 3, 2), (0, 0, -1)])
def test_runs_beyond_an_array_are_refused(run: tuple[int, int, int]) -> None:
    with pytest.raises(IndexError, match="a run of items"):
        Runs(*(np.array([each]) for each in run)).copy(np.zeros(4), np.zeros(4))


def test_keys_of_many_indices_are_those_of_each() -> None:
    assert integer_keys(3, "dropout", 7, 5) == [integer_key(3, "dropout", 7, number) for number in range(5)]
    assert integer_keys(3, "dropout", 7, 0) == []


@settings(deadline=None)
@given(lengths, st.integers(0, 1000), st.sampled_from([np.uint16, np.uint32, np.int64]))
def test_ids_and_bits_are_read_from_how_they_are_stored(sizes: list[int], seed: int, dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array(sizes)
    ids, bits = rng.integers(0, 60_000 if dtype == np.uint16 else 2**31, 101).astype(dtype), rng.random(101) < 0.5
    starts, places = rng.integers(0, 102 - counts), np.cumsum(counts) - counts
    there = np.concatenate([np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])
    for ours in (True, False):
        found, unpacked = np.empty(len(there), np.int32), np.empty(len(there), np.bool_)
        with allowed(ours):
            runs = Runs(starts, places, counts)
            runs.copy_ids(ids, found)
            runs.unpack(np.packbits(bits, bitorder="little"), unpacked)
        assert found.tolist() == ids[there].tolist()
        assert unpacked.tolist() == bits[there].tolist()


def test_runs_beyond_what_is_stored_are_refused() -> None:
    runs, into = Runs(np.array([95]), np.array([0]), np.array([10])), np.empty(10, np.int32)
    with pytest.raises(IndexError):
        runs.copy_ids(np.zeros(100, np.uint16), into)
    with pytest.raises(IndexError):
        runs.unpack(np.zeros(13, np.uint8), into.astype(np.bool_))


def test_what_does_not_fit_together_is_refused() -> None:
    three, one = np.arange(3), np.ones(1, dtype=np.int64)
    with pytest.raises(ValueError, match="starts"):
        Runs(three, three[:2], one).copy(np.arange(9), np.zeros(9, dtype=np.int64))
    with pytest.raises(ValueError, match="arrays"):
        Runs(one, one, one).copy_ids(np.zeros(9, np.uint16), np.zeros(9, np.int64))
    with pytest.raises(ValueError, match="lengths"):
        listed(three, one)
    draws = draws_for(1, 0)
    with pytest.raises(ValueError, match="1 keys for 2 sequences"):
        draws.bits_everywhere("a purpose", np.array([0, 2, 4]))
    with pytest.raises(IndexError, match="ascend"):
        draws.uniform_of("a purpose", np.array([0, 6]), np.array([4, 1, 5]))


def test_arrays_that_share_memory_are_read_before_they_are_written() -> None:
    for ours in (True, False):
        values = np.arange(10)
        with allowed(ours):
            Runs(np.array([0]), np.array([1]), np.array([8])).copy(values, values)
        assert values.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_runs_are_what_they_were_when_they_were_checked() -> None:
    starts = np.array([0])
    runs, source = Runs(starts, np.array([0]), np.array([2])), np.arange(4)
    into = np.zeros(2, dtype=np.int64)
    runs.copy(source, into)
    starts[0] = 1000
    runs.copy(source, into)
    assert into.tolist() == [0, 1]


@pytest.mark.parametrize("cu_seqlens", [[1, 3], [0, 5, 2], [0]])
def test_sequences_that_do_not_follow_one_another_are_refused(cu_seqlens: list[int]) -> None:
    bounds, one = np.array(cu_seqlens), np.zeros(max(1, len(cu_seqlens) - 1), np.uint64)
    with pytest.raises(ValueError, match=r"from 0 on|1 keys for 0 sequences"):
        bits_everywhere(one, bounds)


def test_units_across_sequences_have_the_numbers_of_each_token_s_own() -> None:
    """And units without a token none, wherever they stand."""
    cu_seqlens, draws = np.array([0, 3, 3, 8]), draws_for(3, 5)
    starts, ends = np.array([0, 2, 2, 6, 8]), np.array([0, 2, 5, 8, 8])
    numbers = draws.uniform_of("a purpose", cu_seqlens, np.arange(8))
    asked = [2, 3, 4, 6, 7]
    for by_unit, of in ((False, asked), (True, [2, 2, 2, 6, 6])):
        ids = np.zeros(8, np.int32)
        found = put_below(
            draws.keys("a purpose"), cu_seqlens, Selection(starts, ends), (0.4, 0.8), 1, ids, by_unit=by_unit
        )
        assert found is not None
        assert np.flatnonzero(ids).tolist() == [token for token, at in zip(asked, of, strict=True) if numbers[at] < 0.4]
        assert found.tolist() == [token for token, at in zip(asked, of, strict=True) if 0.4 <= numbers[at] < 0.8]
    with pytest.raises(ValueError, match="shape"):
        put_below(draws.keys("a purpose"), cu_seqlens, Selection(starts, ends[:1]), (0.4, 0.8), 1, ids, by_unit=False)


def test_what_must_not_be_written_to_is_not() -> None:
    into, one = np.zeros(4, dtype=np.int64), np.ones(1, dtype=np.int64)
    into.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        Runs(one, one, one).copy(np.arange(4), into)
    assert not into.any()


@settings(deadline=None)
@given(lengths, st.integers(0, 1000), st.booleans())
def test_tokens_are_put_where_numbers_lie_below_a_bound(sizes: list[int], seed: int, by_unit: bool) -> None:
    rng, draws = np.random.default_rng(seed), draws_for(len(sizes), seed)
    cu_seqlens = np.concatenate([[0], np.cumsum(sizes)])
    total = int(cu_seqlens[-1])
    # Units of one to three tokens that end where sequences do.
    starts = np.flatnonzero(rng.random(total) < 0.4)
    stops = cu_seqlens[np.searchsorted(cu_seqlens, starts, side="right")]
    ends = np.minimum(np.minimum(starts + rng.integers(1, 4, len(starts)), np.append(starts[1:], total)), stops)
    before = rng.integers(0, 99, total).astype(np.int32)
    expected, others = before.copy(), []
    sequences = np.repeat(np.arange(len(sizes)), sizes)
    numbers = draws.uniform_at("a purpose", sequences, np.arange(total) - cu_seqlens[sequences])
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        for token in range(start, end):
            number = numbers[start if by_unit else token]
            if number < 0.5:
                expected[token] = 100
            elif number < 0.7:
                others.append(token)
    keys, chosen = draws.keys("a purpose"), Selection(starts, ends)
    found = put_below(keys, cu_seqlens, chosen, (0.5, 0.7), 100, before, by_unit=by_unit)
    assert found is not None
    assert found.tolist() == others
    assert before.tolist() == expected.tolist()


@pytest.mark.parametrize("units", [([3, 2], [4, 3]), ([0, 1], [2, 3]), ([1], [7]), ([-1], [1]), ([3], [2])])
def test_units_that_do_not_lie_in_the_batch_one_after_another_are_refused(units: tuple[list[int], list[int]]) -> None:
    ids, chosen = np.zeros(6, np.int32), Selection(*map(np.array, units))
    with pytest.raises(IndexError, match="beyond 6 tokens"):
        put_below(draws_for(1, 0).keys("a purpose"), np.array([0, 6]), chosen, (0.5, 0.7), 1, ids, by_unit=False)
    with pytest.raises(ValueError, match="6 tokens"):
        put_below(draws_for(1, 0).keys("a purpose"), np.array([0, 6]), chosen, (0.5, 0.7), 1, ids[1:], by_unit=False)
    assert not ids.any()
