"""Many keyed numbers at once are the numbers that come one by one."""

import numpy as np

from maskwright.core.randomness import RandomNumbers, bits, generator, generators, integer_key, integer_keys, keys


def test_generators_are_those_made_one_by_one() -> None:
    for index, shared in enumerate(generators(3, "layout", 2, 20)):
        alone = generator(3, "layout", 2, index)
        assert shared.random() == alone.random()
        assert shared.integers(1000, size=5).tolist() == alone.integers(1000, size=5).tolist()
    assert list(generators(3, "layout", 2, 0)) == []


def test_numbers_at_some_tokens_are_those_of_each_sequence_s_stream() -> None:
    refresh, index = np.array([0, 3, 1]), np.array([7, 8, 9])
    rng = RandomNumbers(1, refresh, index)
    sequences, offsets = np.array([2, 0, 1, 2, 0]), np.array([6, 0, 0, 0, 3])
    expected = [
        int(bits(keys(1, "masking", int(refresh[sequence]), int(index[sequence])), int(offset))[0])
        for sequence, offset in zip(sequences, offsets, strict=True)
    ]
    assert rng.bits_at("masking", sequences, offsets).tolist() == expected
    assert rng.uniform_at("masking", sequences, offsets).tolist() == [(each >> 11) / 2**53 for each in expected]


def test_keys_of_many_indices_are_those_of_each() -> None:
    assert integer_keys(3, "dropout", 7, 5) == [integer_key(3, "dropout", 7, number) for number in range(5)]
    assert integer_keys(3, "dropout", 7, 0) == []
