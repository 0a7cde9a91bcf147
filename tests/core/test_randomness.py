"""Keyed randomness: the same key gives the same number, different keys give unrelated ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.core.randomness import (
    Permutation,
    RandomNumbers,
    as_uniform,
    bits,
    generator,
    generators,
    integer_key,
    keys,
    mix,
    uniform,
)

seeds = st.integers(min_value=-(2**70), max_value=2**70)
small = st.integers(min_value=0, max_value=2**40)


def test_mix_is_the_splitmix64_finalizer():
    # First outputs of SplitMix64 from state 1234567 (the generator adds the golden gamma, then mixes).
    states = np.uint64(1234567) + np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_pinned():
    # Runs are resumed by later versions: these may never change.
    assert keys(1, "masking", 2, 3).tolist() == [2699795164502391374]
    assert integer_key(1, "masking", 2, 3) == 2699795164502391374 >> 1
    assert uniform(keys(1, "masking", 2, 3), 4).tolist() == [0.20846803403780712]


@given(seeds, small, small)
def test_each_part_of_the_key_matters(seed, epoch, index):
    key = keys(seed, "x", epoch, index)[0]
    others = [
        keys(seed + 1, "x", epoch, index),
        keys(seed, "y", epoch, index),
        keys(seed, "x", epoch + 1, index),
        keys(seed, "x", epoch, index + 1),
        keys(seed, "x", index, epoch) if epoch != index else np.zeros(1, np.uint64),
    ]
    assert all(key != other[0] for other in others)


def test_uniform_fills_the_unit_interval_evenly():
    values = uniform(keys(0, "x", 0, np.arange(1000))[:, None], np.arange(100)[None, :])
    assert values.shape == (1000, 100)
    assert values.min() >= 0
    assert values.max() < 1
    counts = np.histogram(values, bins=50, range=(0, 1))[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 95  # 49 degrees of freedom: p below 1e-4


def test_neighboring_keys_and_counters_are_unrelated():
    values = uniform(keys(0, "x", 0, np.arange(400))[:, None], np.arange(400)[None, :]) - 0.5
    bound = 4 / (12 * 400)  # four standard deviations of a mean of products
    assert abs((values[1:] * values[:-1]).mean()) < bound
    assert abs((values[:, 1:] * values[:, :-1]).mean()) < bound
    other = uniform(keys(0, "y", 0, np.arange(400))[:, None], np.arange(400)[None, :]) - 0.5
    assert abs((values * other).mean()) < bound


@given(seeds, st.lists(st.tuples(small, small, st.integers(0, 12)), min_size=1, max_size=6))
def test_a_batch_draws_what_its_instances_draw_one_by_one(seed, instances):
    epoch, index, lengths = (np.array(column) for column in zip(*instances, strict=True))
    sequences = np.repeat(np.arange(len(lengths)), lengths)
    offsets = np.concatenate([np.arange(length) for length in lengths])
    together, cu_seqlens = RandomNumbers(seed, epoch, index), np.append(0, np.cumsum(lengths))
    uniforms = together.uniform_at("a", sequences, offsets)
    numbers = bits(together.keys("a")[sequences], offsets)
    assert together.bits_everywhere("a", cu_seqlens).tolist() == numbers.tolist()
    assert as_uniform(numbers).tolist() == uniforms.tolist()
    tokens = np.arange(len(offsets))[index[0] % 2 :: 2]
    assert together.uniform_of("a", cu_seqlens, tokens).tolist() == uniforms[tokens].tolist()
    for row in range(len(lengths)):
        alone = RandomNumbers(seed, epoch[row : row + 1], index[row : row + 1])
        own = sequences == row
        places = np.zeros(int(own.sum()), dtype=np.int64), offsets[own]
        assert np.array_equal(uniforms[own], alone.uniform_at("a", *places))
        assert together.per_instance("b")[row] == alone.per_instance("b")[0]


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
def test_permutation_visits_every_item_once(size, key):
    assert np.array_equal(np.sort(Permutation(size, key)(np.arange(size))), np.arange(size))


@given(st.integers(1, 10**15), st.integers(0, 2**63 - 1), st.data())
def test_permutation_of_any_slice_is_the_slice_of_the_whole(size, key, data):
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5)))
    shuffle = Permutation(size, key)
    items = shuffle(positions)
    assert items.shape == positions.shape
    assert np.all((items >= 0) & (items < size))
    assert items.tolist() == [int(shuffle(np.array([position]))[0]) for position in positions]


def test_permutations_of_many_keys_put_items_everywhere():
    size, positions = 10, np.array([0, 5, 9])
    items = np.array([Permutation(size, key)(positions) for key in range(600)])
    for found in items.T:
        counts = np.bincount(found, minlength=size)
        expected = 600 / size
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert chi_square < size - 1 + 5 * np.sqrt(2 * (size - 1)) + 5


def test_generators_are_those_made_one_by_one() -> None:
    for index, shared in enumerate(generators(3, "layout", 2, 20)):
        alone = generator(3, "layout", 2, index)
        assert shared.random() == alone.random()
        assert shared.integers(1000, size=5).tolist() == alone.integers(1000, size=5).tolist()
    assert list(generators(3, "layout", 2, 0)) == []
