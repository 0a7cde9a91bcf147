"""Number of masked tokens per sequence: each system counts 15 % differently."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, one_of, rng_for, with_levels, within

from maskwright.core.types import Selection
from maskwright.pretext.masking import (
    KnowledgeMasking,
    Masking,
    NgramMasking,
    PMIMasking,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)

MASKINGS = [
    TokenMasking(),
    TokenMasking(max_targets=5),
    TokenMasking(rate=0.4, rounding="up", rate_relative_to="ordinary"),
    TokenMasking(rounding="random", candidates="all"),
    WholeWordMasking(),
    WholeWordMasking(rate=0.3, rounding="down", max_targets=7),
    WholeWordMasking(rounding="random", candidates="all"),
    NgramMasking(),
    NgramMasking(budget="words", order="left_to_right"),
    SpanMasking(),
    PMIMasking(),
]
EVERY = [*MASKINGS, KnowledgeMasking()]
lengths = st.lists(st.integers(3, 90), min_size=1, max_size=12)


ORDINARY = {"rate_relative_to": "ordinary"}


@pytest.mark.parametrize(
    ("masking", "length", "count"),
    [
        # BERT rounds half to even and counts special tokens.
        *((TokenMasking(), length, count) for length, count in [(10, 2), (30, 4), (50, 8), (128, 19), (512, 77)]),
        # SpanBERT rounds up and counts ordinary tokens only.
        *((SpanMasking(), length, count) for length, count in [(512, 77), (128, 19), (22, 3), (23, 4), (3, 1)]),
        # 510 ordinary tokens: 76.5 of them, 76.8 of all.
        (TokenMasking(rounding="up", **ORDINARY), 512, 77),
        (TokenMasking(rounding="down"), 512, 76),
        (TokenMasking(rounding="down", **ORDINARY), 512, 76),
    ],
)
def test_budgets_are_rounded_as_published_and_met(masking: Masking, length: int, count: int) -> None:
    instances = batch_of([length] * 3, share_of_word_starts=0.7)
    positions = masking.select(instances, rng_for(instances)).positions
    assert masking.budgets(instances, rng_for(instances)).tolist() == [count] * 3
    assert np.bincount(instances.sequence_ids[positions]).tolist() == [count] * 3


def test_max_targets_caps_long_sequences() -> None:
    instances = batch_of([512, 60, 128])
    selection = TokenMasking(max_targets=20).select(instances, rng_for(instances))
    assert np.bincount(instances.sequence_ids[selection.positions]).tolist() == [20, 9, 19]


def test_roberta_rounds_at_random_to_76_or_77_of_512() -> None:
    instances = batch_of([512] * 5000)
    budgets = TokenMasking(rounding="random").budgets(instances, rng_for(instances))
    assert set(budgets.tolist()) == {76, 77}
    assert within((budgets == 77).mean(), 0.8, 5000)


@settings(max_examples=100)
@given(st.sampled_from(MASKINGS), lengths, st.floats(0.2, 1), st.integers(0, 100))
def test_selection_keeps_to_budget_candidates_and_order(masking, lengths, share, seed):
    instances = with_levels(batch_of(lengths, seed, share), seed)
    rng = rng_for(instances, seed)
    selection = masking.select(instances, rng)
    starts, ends = selection.starts, selection.ends
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
    sequences = instances.sequence_ids
    assert np.array_equal(sequences[starts], sequences[ends - 1])
    if masking.candidates == "ordinary":
        assert not instances.special[selection.positions].any()
    positions = selection.positions
    by_words = isinstance(masking, NgramMasking) and masking.budget == "words"
    counted = positions[instances.word_starts[positions]] if by_words else positions
    given_up = np.bincount(sequences[counted], minlength=len(lengths))
    assert (given_up <= masking.budgets(instances, rng)).all()


@settings(max_examples=100)
@given(st.sampled_from(EVERY), lengths, st.integers(0, 50), st.integers(0, 3))
def test_a_batch_draws_what_its_sequences_draw_one_by_one(masking, lengths, seed, mask_sample):
    instances = with_levels(batch_of(lengths, seed, 0.6), seed)
    together = masking.select(instances, rng_for(instances, seed, mask_sample, first_index=7))
    alone = []
    for number in range(len(instances)):
        single = one_of(instances, number)
        selection = masking.select(single, rng_for(single, seed, mask_sample, first_index=7 + number))
        offset = instances.cu_seqlens[number]
        alone.append(Selection(selection.starts + offset, selection.ends + offset))
    assert np.array_equal(together.starts, np.concatenate([part.starts for part in alone]))
    assert np.array_equal(together.ends, np.concatenate([part.ends for part in alone]))


@pytest.mark.parametrize("masking", EVERY, ids=repr)
def test_selection_depends_on_seed_sample_and_index_alone(masking: Masking) -> None:
    instances = with_levels(batch_of([64] * 8, share_of_word_starts=0.7))
    first = masking.select(instances, rng_for(instances, seed=1, mask_sample=2)).positions
    assert np.array_equal(first, masking.select(instances, rng_for(instances, seed=1, mask_sample=2)).positions)
    for other in (
        rng_for(instances, seed=2, mask_sample=2),
        rng_for(instances, seed=1, mask_sample=3),
        rng_for(instances, seed=1, mask_sample=2, first_index=1),
    ):
        assert not np.array_equal(first, masking.select(instances, other).positions)


def test_selection_without_ordinary_tokens_is_empty() -> None:
    for masking in EVERY:
        instances = with_levels(batch_of([] if masking.candidates == "all" else [2, 2]))
        assert len(masking.select(instances, rng_for(instances)).positions) == 0
