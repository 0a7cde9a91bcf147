"""80/10/10, per token and per unit, and the ids that random tokens come from."""

import re
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretext_samples import SPECIAL, VOCABULARY, batch_of, looks_uniform, rng_for, within

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import Instances, IntArray, Selection
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.masking.base import check_shares
from maskwright.pretext.replacement import MaskRandomKeep, VocabularyFacts
from maskwright.pretext.replacement.base import Replacement, uniform_ids

NEVER = [SPECIAL.pad, SPECIAL.unk, SPECIAL.cls, SPECIAL.sep]


def pairs_of_tokens(number: int) -> tuple[Instances, Selection]:
    """One sequence in which units of two tokens are selected one after another."""
    instances = batch_of([2 * number + 2])
    starts = 1 + 2 * np.arange(number)
    return instances, Selection(starts, starts + 2)


def replaced(replacement: MaskRandomKeep, number: int, seed: int = 0) -> tuple[IntArray, IntArray]:
    instances, selection = pairs_of_tokens(number)
    corrupted = replacement.replace_tokens(instances, selection, rng_for(instances, seed), VOCABULARY)
    return instances.ids[selection.positions], corrupted[selection.positions]


@pytest.mark.parametrize("per", ["token", "unit"])
def test_shares_are_80_10_10(per: str) -> None:
    before, after = replaced(MaskRandomKeep.model_validate({"per": per}), 100_000)
    masked, kept = after == SPECIAL.mask, (after == before) & (before != SPECIAL.mask)
    decided = len(after) if per == "token" else len(after) // 2
    tolerance = 4.5 * np.sqrt(0.8 * 0.2 / decided)
    # A random token equals the mask token, or the token itself, once in 1000 times.
    assert abs(masked.mean() - (0.8 + 0.1 / 1000)) < tolerance
    assert abs(kept.mean() - (0.1 + 0.1 / 1000)) < tolerance
    assert abs((~masked & ~kept).mean() - (0.1 - 0.2 / 1000)) < tolerance


def test_per_token_decides_each_token_and_per_unit_each_unit() -> None:
    shares = {"mask": 0.5, "random": 0.5, "keep": 0.0}
    for per, agreeing in (("token", 0.5), ("unit", 1.0)):
        _, after = replaced(MaskRandomKeep.model_validate({**shares, "per": per, "random_from": "ordinary"}), 20_000)
        masked = (after == SPECIAL.mask).reshape(-1, 2)
        same = (masked[:, 0] == masked[:, 1]).mean()
        # A random token is the mask token once in 996 times.
        assert abs(same - agreeing) < 4.5 * 0.5 / np.sqrt(20_000) + 1 / 996


@pytest.mark.parametrize(("random_from", "never"), [("vocabulary", []), ("ordinary", NEVER)], ids=["bert", "roberta"])
def test_random_tokens_come_from_the_whole_vocabulary_or_all_but_four_specials(random_from, never):
    replacement = MaskRandomKeep.model_validate({"mask": 0, "random": 1, "keep": 0, "random_from": random_from})
    counts = np.bincount(replaced(replacement, 100_000)[1], minlength=SPECIAL.vocab_size)
    assert len(counts) == SPECIAL.vocab_size
    assert not counts[never].any()
    allowed = np.delete(counts, never)
    assert allowed.min() > 0
    assert looks_uniform(allowed)


def test_spanbert_draws_random_tokens_as_often_as_they_stand_in_the_corpus() -> None:
    counts = np.zeros(SPECIAL.vocab_size, dtype=np.int64)
    counts[[7, 8, 900, 999]] = [1, 2000, 5000, 2999]
    instances, selection = pairs_of_tokens(100_000)
    corrupted = MaskRandomKeep(mask=0, random=1, keep=0, random_from="corpus").replace_tokens(
        instances, selection, rng_for(instances), VocabularyFacts(special_tokens=SPECIAL, token_counts=counts)
    )
    drawn = np.bincount(corrupted[selection.positions], minlength=SPECIAL.vocab_size)
    assert drawn.sum() == 200_000
    assert not drawn[counts == 0].any()  # Special tokens among them.
    for token in (7, 8, 900, 999):
        assert within(drawn[token] / 200_000, counts[token] / 10_000, 200_000)


@pytest.mark.parametrize("counts", [None, np.zeros(1000, dtype=np.int64)])
def test_drawing_from_a_corpus_that_nobody_counted_is_an_error(counts: IntArray | None) -> None:
    instances, selection = pairs_of_tokens(50)
    with pytest.raises(RecipeError, match=r"random_from is 'corpus'.*unknown.*random_from=vocabulary"):
        MaskRandomKeep(mask=0, random=1, keep=0, random_from="corpus").replace_tokens(
            instances, selection, rng_for(instances), VocabularyFacts(special_tokens=SPECIAL, token_counts=counts)
        )


def test_only_selected_tokens_may_differ() -> None:
    instances = batch_of([64] * 50)
    before = instances.ids.copy()
    selection = TokenMasking().select(instances, rng_for(instances))
    corrupted = MaskRandomKeep().replace_tokens(instances, selection, rng_for(instances), VOCABULARY)
    differing = np.flatnonzero(corrupted != instances.ids)
    assert set(differing.tolist()) <= set(selection.positions.tolist())
    assert np.array_equal(instances.ids, before)
    assert corrupted.dtype == np.int32


def test_shares_add_up_to_one_up_to_rounding() -> None:
    for shares in ({"one": 1.0}, {str(number): 0.1 for number in range(10)}, {"a": 0.5, "b": 0.5 + 9e-7}):
        check_shares(shares)
    message = "mask 0.8 + random 0.1 + keep 0.2 = 1.1; make them add up to 1"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_shares({"mask": 0.8, "random": 0.1, "keep": 0.2})
    with pytest.raises(ValueError, match="add up to 1"):
        check_shares({"a": 0.5, "b": 0.5 + 2e-6})


@given(st.integers(1, 30), st.sets(st.integers(0, 29), max_size=12))
def test_every_id_but_those_left_out_is_equally_likely(vocab_size: int, never: set[int]) -> None:
    never = {id for id in never if id < vocab_size}
    allowed = [id for id in range(vocab_size) if id not in never]
    # The middle of each of as many equal parts of [0, 1) as there are ids: each is hit once, in order.
    middles = (np.arange(len(allowed)) + 0.5) / max(1, len(allowed))
    assert uniform_ids(middles, vocab_size, never).tolist() == allowed


def test_a_replacement_without_shares_needs_replace_tokens_only() -> None:
    class AlwaysMask(Replacement):
        kind: Literal["always_mask"] = "always_mask"

        def replace_tokens(
            self, instances: Instances, selection: Selection, rng: RandomNumbers, vocabulary: VocabularyFacts
        ) -> IntArray:
            ids = instances.ids.copy()
            ids[selection.positions] = SPECIAL.mask
            return ids

    replacement = AlwaysMask()
    assert replacement.hides
    assert replacement.without_kept is replacement
    instances = batch_of([60])
    rng = rng_for(instances)
    selection = TokenMasking().select(instances, rng)
    ids = replacement.replace_tokens(instances, selection, rng, VOCABULARY)
    assert set(ids[selection.positions]) == {SPECIAL.mask}
