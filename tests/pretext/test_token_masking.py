"""BERT's and RoBERTa's token masking: uniform, distinct, special tokens only where allowed."""

import numpy as np
import pytest
from pretext_samples import batch_of, draws_for, looks_uniform

from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.masking.units import random_order


def test_token_masking_is_uniform_over_ordinary_positions() -> None:
    instances = batch_of([32] * 20_000)
    positions = TokenMasking().select(instances, draws_for(instances, seed=5)).positions
    counts = np.bincount(positions % 32, minlength=32)
    assert len(positions) == 20_000 * 5
    assert counts[0] == counts[31] == 0
    assert looks_uniform(counts[1:31])


def test_token_masking_chooses_pairs_of_positions_independently() -> None:
    instances = batch_of([10] * 30_000)
    positions = TokenMasking().select(instances, draws_for(instances, seed=6)).positions % 10
    pairs = positions.reshape(-1, 2)  # two of eight positions: 28 pairs
    counts = np.bincount(pairs[:, 0] * 10 + pairs[:, 1], minlength=100)
    assert looks_uniform(counts[counts > 0])
    assert (counts > 0).sum() == 28


def test_roberta_also_predicts_special_tokens() -> None:
    instances = batch_of([20] * 20_000)
    masking = TokenMasking(rounding="random", candidates="all")
    counts = np.bincount(masking.select(instances, draws_for(instances)).positions % 20, minlength=20)
    assert looks_uniform(counts)


def test_token_masking_gives_up_all_candidates_if_the_budget_is_larger() -> None:
    instances = batch_of([6])  # four ordinary tokens, budget 5
    selection = TokenMasking(rate=0.9).select(instances, draws_for(instances))
    assert selection.positions.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("number", [3, 70_000])
def test_random_order_shuffles_each_sequence_in_batches_of_any_size(number: int) -> None:
    instances = batch_of([4] * number)
    starts = np.arange(4 * number)
    order = random_order(starts, instances, draws_for(instances), "masking order")
    assert np.array_equal(np.sort(order), starts)
    assert np.array_equal(order // 4, starts // 4)
    assert number == 3 or looks_uniform(np.bincount(order[-4 * 4000 :: 4] % 4, minlength=4))
