"""The random order of tokens: a shuffle of each sequence, whatever else is in the batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, batch_of, looks_uniform, rng_for

from maskwright.core.types import BoolArray, Instances
from maskwright.pretext.masking.sampling import RandomOrder, count_reached

lengths = st.lists(st.one_of(st.integers(2, 40), st.integers(2, 300)), min_size=1, max_size=8)


def some_of(instances: Instances, seed: int, share: float = 0.7) -> BoolArray:
    return np.random.default_rng(seed).random(len(instances.ids)) < share


def in_order(order: RandomOrder, sequence: int) -> list[int]:
    return order.tokens(order.slots[sequence] + np.arange(order.counts[sequence])).tolist()


@settings(deadline=None, max_examples=60)
@given(lengths, st.integers(0, 100), st.booleans())
def test_each_sequence_is_ordered_by_its_own_numbers(lengths: list[int], seed: int, weighted: bool) -> None:
    instances = batch_of(lengths, seed)
    rng, wanted = rng_for(instances, seed), some_of(instances, seed)
    weights = np.random.default_rng(seed).random(SPECIAL.vocab_size) + 0.1 if weighted else None
    order = RandomOrder.of(wanted, instances, rng, "a purpose", weights)
    for sequence, (low, high) in enumerate(zip(instances.cu_seqlens[:-1], instances.cu_seqlens[1:], strict=True)):
        offsets = np.flatnonzero(wanted[low:high])
        numbers = rng.bits_at("a purpose", np.full(len(offsets), sequence), offsets) >> np.uint64(36)
        if weights is not None:
            uniform = rng.uniform_at("a purpose", np.full(len(offsets), sequence), offsets)
            times = (-np.log1p(-uniform) / weights[instances.ids[low + offsets]]).astype(np.float32)
            numbers = times.view(np.uint32) >> 3
        assert in_order(order, sequence) == (low + offsets[np.lexsort((offsets, numbers))]).tolist()


@settings(deadline=None, max_examples=40)
@given(lengths, st.integers(0, 100))
def test_the_first_tokens_are_those_that_come_first(lengths: list[int], seed: int) -> None:
    instances = batch_of(lengths, seed)
    order = RandomOrder.of(some_of(instances, seed), instances, rng_for(instances, seed))
    counts = np.random.default_rng(seed).integers(0, 30, len(lengths))
    expected = [token for sequence, count in enumerate(counts) for token in in_order(order, sequence)[:count]]
    assert order.first(counts).tolist() == sorted(expected)


@pytest.mark.parametrize("number", [3, 70_000])
def test_sequences_are_shuffled_in_batches_of_any_size(number: int) -> None:
    instances = batch_of([4] * number)
    order = RandomOrder.of(np.ones(4 * number, dtype=bool), instances, rng_for(instances))
    tokens = order.tokens(order.slots[:, None] + np.arange(4))
    assert np.array_equal(np.sort(tokens, axis=1).ravel(), np.arange(4 * number))
    assert number == 3 or looks_uniform(np.bincount(tokens[-4000:, 0] % 4, minlength=4))


@given(st.lists(st.floats(0, 1), max_size=40), st.lists(st.floats(0, 1), max_size=20))
def test_counting_reached_bounds_equals_searching(bounds: list[float], numbers: list[float]) -> None:
    ascending = np.sort(np.array(bounds, dtype=np.float64))
    found = count_reached(ascending, np.array(numbers, dtype=np.float64))
    assert found.tolist() == [sum(bound <= number for bound in bounds) for number in numbers]
