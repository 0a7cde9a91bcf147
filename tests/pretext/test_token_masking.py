"""BERT's and RoBERTa's token masking: uniform, distinct, special tokens only where allowed."""

import numpy as np
import pytest
from pretext_samples import batch_of, looks_uniform, rng_for, within
from pydantic import ValidationError

from maskwright.core.errors import RecipeError
from maskwright.pretext.masking import TokenMasking


@pytest.mark.parametrize(
    ("masking", "candidates"),
    [(TokenMasking(), range(1, 31)), (TokenMasking(rounding="random", candidates="all"), range(32))],
    ids=["bert", "roberta"],
)
def test_token_masking_is_uniform_over_its_candidates(masking: TokenMasking, candidates: range) -> None:
    instances = batch_of([32] * 20_000)
    counts = np.bincount(masking.select(instances, rng_for(instances, seed=5)).positions % 32, minlength=32)
    assert looks_uniform(counts[candidates])
    assert not np.delete(counts, candidates).any()


def test_token_masking_chooses_pairs_of_positions_independently() -> None:
    instances = batch_of([10] * 30_000)
    positions = TokenMasking().select(instances, rng_for(instances, seed=6)).positions % 10
    pairs = positions.reshape(-1, 2)  # two of eight positions: 28 pairs
    counts = np.bincount(pairs[:, 0] * 10 + pairs[:, 1], minlength=100)
    assert looks_uniform(counts[counts > 0])
    assert (counts > 0).sum() == 28


def test_rare_tokens_are_sampled_by_their_weights() -> None:
    # One of two tokens is selected, one seen 1000 times, one seen 10 times: weights .00794 and .1995.
    instances = batch_of([4] * 40_000)
    instances.ids[1::4], instances.ids[2::4] = 10, 11
    counts = np.ones(1000, dtype=np.int64)
    counts[10], counts[11] = 1000, 10
    masking = TokenMasking(rate=0.25, sampling="rare")
    chosen = masking.select(instances, rng_for(instances, seed=8), counts).positions % 4
    assert len(chosen) == 40_000
    frequent, rare = 1000**-0.7, 10**-0.7
    assert (round(rare, 4), round(frequent, 5)) == (0.1995, 0.00794)
    assert within(float((chosen == 2).mean()), rare / (rare + frequent), 40_000)


def test_rare_tokens_are_drawn_like_one_by_one_without_replacement() -> None:
    # All sets of two of four tokens, against the plain sequential draw: p(a) p(b | a gone) + p(b) p(a | b gone).
    counts = np.array([1, 3, 20, 400], dtype=np.int64)
    weights = counts**-0.7
    shares = weights / weights.sum()
    instances = batch_of([6] * 60_000)
    for index in range(4):
        instances.ids[index + 1 :: 6] = index
    masking = TokenMasking(rate=0.33, sampling="rare")
    positions = masking.select(instances, rng_for(instances, seed=9), counts).positions % 6 - 1
    pairs = np.bincount(positions[::2] * 4 + positions[1::2], minlength=16)
    assert pairs.sum() == 60_000
    for first in range(4):
        for second in range(first + 1, 4):
            expected = shares[first] * shares[second] * (1 / (1 - shares[first]) + 1 / (1 - shares[second]))
            assert within(pairs[first * 4 + second] / 60_000, expected, 60_000)


def test_a_weight_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"smoothing 1 has no effect with sampling 'uniform'; change sampling"):
        TokenMasking(smoothing=1)
    assert TokenMasking(sampling="rare", smoothing=1).uses_token_counts
    # Turning it off in a recipe that prefers rare tokens takes one setting.
    assert not TokenMasking(sampling="rare").replace(sampling="uniform").uses_token_counts


def test_sampling_rare_tokens_needs_their_counts() -> None:
    instances = batch_of([9])
    with pytest.raises(RecipeError, match=r"masking\.sampling is 'rare'.*sampling=uniform"):
        TokenMasking(sampling="rare").select(instances, rng_for(instances))
