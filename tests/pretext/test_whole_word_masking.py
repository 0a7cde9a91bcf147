"""Whole words: never cut, never over the budget, the others still tried."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, ranges, rng_for, with_levels

from maskwright.pretext.masking import KnowledgeMasking, Masking, PMIMasking, WholeWordMasking
from maskwright.pretext.masking.base import RandomOrder


@pytest.mark.parametrize(
    "masking",
    [WholeWordMasking(), KnowledgeMasking(), PMIMasking()],
    ids=lambda masking: masking.kind,
)
def test_no_mask_splits_a_word_and_the_rate_holds(masking: Masking) -> None:
    # Words of 1 to 9 tokens, 2.5 on average: none is selected in part, whatever larger units it is in.
    instances = with_levels(batch_of([512] * 300, share_of_word_starts=0.4))
    selection = masking.select(instances, rng_for(instances))
    masked = np.zeros(len(instances.ids), dtype=bool)
    masked[selection.positions] = True
    word_of = np.cumsum(instances.word_starts) - 1
    of_word = np.bincount(word_of, weights=masked) / np.bincount(word_of)
    assert set(of_word.tolist()) == {0.0, 1.0}
    assert masked.sum() / (~instances.special).sum() == pytest.approx(0.15, abs=0.005)


@settings(max_examples=100)
@given(st.lists(st.integers(3, 90), min_size=1, max_size=6), st.floats(0.1, 1), st.integers(0, 1000))
def test_words_fill_the_budget_like_a_plain_loop(lengths: list[int], share: float, seed: int) -> None:
    instances = batch_of(lengths, seed, share)
    rng, masking = rng_for(instances, seed), WholeWordMasking(rate=0.3)
    order = RandomOrder.of(instances.word_starts & ~instances.special, instances, rng)
    bounds = np.append(np.flatnonzero(instances.word_starts), len(instances.ids))
    left, expected = masking.budgets(instances, rng), []
    for start in order.tokens:
        end, sequence = bounds[np.searchsorted(bounds, start) + 1], instances.sequence_ids[start]
        if end - start <= left[sequence]:
            left[sequence] -= end - start
            expected.append((start, end))
    selection = masking.select(instances, rng)
    assert ranges(selection.starts, selection.ends) == sorted(expected)
