"""Many keyed numbers at once are the numbers that come one by one."""

import numpy as np

from maskwright.core.randomness import Draws, generator, generators


def test_generators_are_those_made_one_by_one() -> None:
    for index, shared in enumerate(generators(3, "layout", 2, 20)):
        alone = generator(3, "layout", 2, index)
        assert shared.random() == alone.random()
        assert shared.integers(1000, size=5).tolist() == alone.integers(1000, size=5).tolist()
    assert list(generators(3, "layout", 2, 0)) == []


def test_numbers_at_some_tokens_are_those_of_all_tokens() -> None:
    cu_seqlens = np.array([0, 4, 5, 12])
    draws = Draws(1, np.array([0, 3, 1]), np.array([7, 8, 9]))
    tokens = np.array([11, 0, 4, 5, 3])
    sequences = np.array([2, 0, 1, 2, 0])
    offsets = tokens - cu_seqlens[sequences]
    assert np.array_equal(
        draws.bits_at("masking", sequences, offsets), draws.bits_per_token("masking", cu_seqlens)[tokens]
    )
    assert np.array_equal(
        draws.uniform_at("masking", sequences, offsets), draws.per_token("masking", cu_seqlens)[tokens]
    )
