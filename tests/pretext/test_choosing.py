"""Units chosen by our C code are those that NumPy chooses, whatever the masking, lengths and words."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import VOCABULARY, batch_of, draws_for, with_levels

from maskwright.core.own_code import allowed
from maskwright.core.types import Instances, Selection
from maskwright.pretext.masking import (
    LevelMasking,
    Masking,
    NgramMasking,
    PMIMasking,
    SpanMasking,
    TokenMasking,
    WholeWordMasking,
)
from maskwright.pretext.masking.choosing import CODE, Choice, order_keys, weighted_order_keys
from maskwright.pretext.masking.order import RandomOrder
from maskwright.pretext.masking.units import until_full
from maskwright.pretext.replacement import MaskRandomKeep

MASKINGS: dict[str, Masking] = {
    "token": TokenMasking(),
    "many tokens": TokenMasking(rate=0.95, rounding="random"),
    "any token": TokenMasking(candidates="all", max_targets=7),
    "rare": TokenMasking(favour="rare", rate=0.4),
    "whole word": WholeWordMasking(),
    "many words": WholeWordMasking(rate=0.6, candidates="all"),
    "budget of words": WholeWordMasking(budget="words"),
    "windows": NgramMasking(),
    "long windows": NgramMasking(rate=0.7, length_shares=(0.1, 0, 0.2, 0.3, 0.4), candidates="all"),
    "windows of words": NgramMasking(budget="words"),
    "many lengths": NgramMasking(length_shares=(0.05,) * 20),
    "left to right": NgramMasking(length_shares=(0.4, 0.3, 0.2, 0.1), budget="words", order="left_to_right"),
    "all from left": NgramMasking(budget="words", order="left_to_right", rate=0.8, candidates="all"),
    "span": SpanMasking(),
    "long spans": SpanMasking(rate=0.9, longest_span=30, geometric_p=0.05),
    "whole spans": SpanMasking(rate=0.7, cut_last_word=False),
    "levels": LevelMasking(),
    "few levels": LevelMasking(rate=0.02, order="mixed"),
    "pmi": PMIMasking(rate=0.3),
}
COUNTS = np.arange(1000)


@pytest.fixture(autouse=True, scope="module")
def _ours() -> None:
    """Skip where there is no compiled code."""
    if CODE.library() is None:
        pytest.skip(str(CODE.problem()))


def with_separators(instances: Instances, seed: int) -> Instances:
    """Put separators in, anywhere but at the ends."""
    put = np.random.default_rng([seed, 1]).random(len(instances.ids)) < 0.05
    special = instances.special | put
    word_starts = instances.word_starts | put
    word_starts[1:] |= put[:-1]
    return replace(instances, special=special, word_starts=word_starts)


@pytest.mark.parametrize("name", MASKINGS)
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.one_of(st.integers(2, 24), st.integers(2, 300)), min_size=1, max_size=9),
    st.floats(0.1, 1),
    st.integers(0, 10_000),
)
def test_c_chooses_what_numpy_chooses(name: str, lengths: list[int], share: float, seed: int) -> None:
    masking = MASKINGS[name]
    instances = with_levels(with_separators(batch_of(lengths, seed, share), seed), seed)
    draws = draws_for(instances, seed, first_index=seed)
    ours = masking.select(instances, draws, COUNTS)
    with allowed(False):
        plain = masking.select(instances, draws, COUNTS)
    assert_same(ours, plain)
    for per in ("token", "unit"):
        replacement = MaskRandomKeep.model_validate({"per": per, "mask": 0.4, "random": 0.4, "keep": 0.2})
        corrupted = replacement.replace_tokens(instances, ours, draws, VOCABULARY)
        with allowed(False):
            assert (corrupted == replacement.replace_tokens(instances, plain, draws, VOCABULARY)).all()


def assert_same(ours: Selection, plain: Selection) -> None:
    assert ours.starts.dtype == ours.ends.dtype == np.int64
    assert ours.starts.tolist() == plain.starts.tolist()
    assert ours.ends.tolist() == plain.ends.tolist()


def test_sort_keys_are_the_same() -> None:
    instances = batch_of([30, 2, 200, 7])
    draws, wanted = draws_for(instances), instances.word_starts & ~instances.special
    ours = RandomOrder.of(wanted, instances, draws)
    with allowed(False):
        plain = RandomOrder.of(wanted, instances, draws)
    assert ours.keys.tolist() == plain.keys.tolist()
    assert ours.counts.tolist() == plain.counts.tolist()


def test_an_id_without_a_weight_is_refused() -> None:
    instances = batch_of([30, 7])
    draws, wanted = draws_for(instances), ~instances.special
    with pytest.raises(IndexError, match="no weight"):
        RandomOrder.of(wanted, instances, draws, weights=np.ones(int(instances.ids.max())))


@pytest.mark.parametrize("budget", [1, 60, 65, 500, 900])
def test_keys_that_crowd_are_visited_in_order_too(budget: int) -> None:
    # All of a sequence's keys in a hundredth of their range, and of another's in a ten-thousandth.
    offsets = np.arange(900, dtype=np.uint64)
    numbers = np.random.default_rng(0).permutation(900).astype(np.uint64)
    keys = np.concatenate([numbers << np.uint64(48), numbers << np.uint64(41)]) | np.append(offsets, offsets + 900)
    choice = Choice(
        cu_seqlens=np.array([0, 900, 1800]),
        budgets=np.array([budget, budget]),
        keys=keys,
        begins=np.ones(1800, dtype=bool),
    )
    expected = np.flatnonzero(np.append(numbers, numbers) < budget).tolist()
    for way in ("units_until_full", "first_tokens"):
        starts = choice.starts(way)
        assert starts is not None
        assert starts.tolist() == expected


def test_an_empty_batch_and_one_without_candidates_give_nothing() -> None:
    instances = batch_of([2, 2])
    for masking in MASKINGS.values():
        if masking.candidates == "all" or masking.levels:
            continue
        assert not len(masking.select(instances, draws_for(instances), COUNTS).starts)
    nothing = np.zeros(0, dtype=bool)
    empty = replace(instances, cu_seqlens=np.zeros(1, dtype=np.int64), ids=instances.ids[:0], special=nothing)
    assert not len(until_full(nothing, nothing, empty, np.zeros(0, dtype=np.int64), draws_for(empty)).starts)


def test_more_keys_than_sequences_are_refused() -> None:
    keys, one, wanted = np.zeros(2, np.uint64), np.array([0, 4]), np.ones(4, dtype=bool)
    with pytest.raises(ValueError, match="2 keys for 1"):
        order_keys(keys, one, wanted)
    with pytest.raises(ValueError, match="2 keys for 1"):
        weighted_order_keys(keys, one, wanted, np.ones(9), np.zeros(4, np.int32))


def test_a_way_without_what_it_reads_is_refused() -> None:
    begins = np.ones(4, dtype=bool)
    with pytest.raises(ValueError, match="units_by_chance reads maskable, place_keys, bounds"):
        Choice(cu_seqlens=np.array([0, 4]), begins=begins).selection("units_by_chance")
    with pytest.raises(ValueError, match="first_tokens reads budgets, keys"):
        Choice(cu_seqlens=np.array([0, 4])).starts("first_tokens")


@pytest.mark.parametrize("budgets", [None, np.zeros(1, np.int64)])
def test_units_by_chance_have_no_budget(budgets: np.ndarray | None) -> None:
    every = np.ones(40, dtype=bool)
    found = Choice(
        cu_seqlens=np.array([0, 40]),
        budgets=budgets,
        begins=every,
        maskable=every,
        place_keys=np.zeros(1, np.uint64),
        bounds=np.ones(1),
    ).selection("units_by_chance")
    assert found is not None
    assert found.starts.tolist() == list(range(40))


def test_values_for_another_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values for 4"):
        Choice(cu_seqlens=np.array([0, 4]), budgets=np.array([1]), keys=np.zeros(3, dtype=np.uint64)).starts(
            "first_tokens"
        )
