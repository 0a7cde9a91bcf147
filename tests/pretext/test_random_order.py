"""The random order of tokens: a shuffle of each sequence, whatever else is in the batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, batch_of, looks_uniform, rng_for

from maskwright.core.randomness import bits
from maskwright.pretext.masking.base import RandomOrder

lengths = st.lists(st.one_of(st.integers(2, 40), st.integers(2, 300)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(lengths, st.integers(0, 100), st.booleans())
def test_each_sequence_is_ordered_by_its_own_numbers(lengths: list[int], seed: int, weighted: bool) -> None:
    instances, generator = batch_of(lengths, seed), np.random.default_rng(seed)
    rng, wanted = rng_for(instances, seed), generator.random(len(instances.ids)) < 0.7
    weights = generator.random(SPECIAL.vocab_size) + 0.1 if weighted else None
    order = RandomOrder.of(wanted, instances, rng, weights)
    firsts = generator.integers(0, 30, len(lengths))
    expected, expected_firsts = [], []
    for sequence, (low, high) in enumerate(zip(instances.cu_seqlens[:-1], instances.cu_seqlens[1:], strict=True)):
        offsets = np.flatnonzero(wanted[low:high])
        numbers = bits(rng.keys("masking order")[sequence], offsets) >> np.uint64(36)
        if weights is not None:
            uniform = rng.uniform_at("masking order", np.full(len(offsets), sequence), offsets)
            times = (-np.log1p(-uniform) / weights[instances.ids[low + offsets]]).astype(np.float32)
            numbers = times.view(np.uint32) >> 3
        ordered = (low + offsets[np.lexsort((offsets, numbers))]).tolist()
        expected += ordered
        expected_firsts += sorted(ordered[: firsts[sequence]])
    assert order.tokens.tolist() == expected
    assert order.first(firsts).tolist() == expected_firsts


@pytest.mark.parametrize("number", [3, 70_000])
def test_sequences_are_shuffled_in_batches_of_any_size(number: int) -> None:
    instances = batch_of([4] * number)
    tokens = RandomOrder.of(np.ones(4 * number, dtype=bool), instances, rng_for(instances)).tokens.reshape(-1, 4)
    assert np.array_equal(np.sort(tokens, axis=1).ravel(), np.arange(4 * number))
    assert number == 3 or looks_uniform(np.bincount(tokens[-4000:, 0] % 4, minlength=4))
