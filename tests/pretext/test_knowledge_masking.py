"""ERNIE's levels and collocations: whole units of the level asked for, each with its share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, ranges, rng_for, with_levels, within

from maskwright.core.errors import DataError
from maskwright.core.types import Instances
from maskwright.pretext.masking import KnowledgeMasking, PMIMasking, WholeWordMasking
from maskwright.pretext.masking.units import unit_ends

lengths = st.lists(st.integers(3, 90), min_size=1, max_size=8)


def only(level: str) -> KnowledgeMasking:
    """Mask one level alone."""
    return KnowledgeMasking.model_validate({"basic": 0, "phrase": 0, "entity": 0, level: 1, "order": "mixed"})


def begins_of(instances: Instances, level: str) -> set[tuple[int, int]]:
    begins = instances.word_starts if level == "basic" else instances.span_starts[level]
    starts = np.flatnonzero(begins & ~instances.special)
    return set(ranges(starts, unit_ends(begins)[starts]))


@settings(max_examples=40)
@given(lengths, st.integers(0, 50))
def test_units_are_sampled_one_by_one_with_the_number_of_their_position(lengths: list[int], seed: int) -> None:
    instances = with_levels(batch_of(lengths, seed, 0.7), seed)
    rng = rng_for(instances, seed)
    sequences = instances.sequence_ids
    offsets = np.arange(len(sequences)) - instances.cu_seqlens[sequences]
    numbers = rng.uniform_at("masking unit", sequences, offsets)
    expected = []
    for number in range(len(instances)):
        low, high = instances.cu_seqlens[number : number + 2]
        phrases = sorted(unit for unit in begins_of(instances, "phrase") if low <= unit[0] < high)
        drawn = [unit for unit in phrases if numbers[unit[0]] < 0.15]
        expected += drawn or [min(phrases, key=lambda unit: numbers[unit[0]])]
    selection = only("phrase").select(instances, rng)
    assert ranges(selection.starts, selection.ends) == expected


def test_mixed_levels_are_drawn_a_sequence_by_their_shares() -> None:
    instances = with_levels(batch_of([60] * 6000), share_joined=0.5)
    masking = KnowledgeMasking(basic=0.5, phrase=0.2, entity=0.3, order="mixed")
    mixed = masking.select(instances, rng_for(instances))
    drawn = rng_for(instances).per_instance("masking level")
    level_of = np.searchsorted([0.5, 0.7], drawn, side="right")
    assert within(float((level_of == 1).mean()), 0.2, 6000)
    for number, level in enumerate(("basic", "phrase", "entity")):
        alone = only(level).select(instances, rng_for(instances))
        theirs = [
            [unit for unit, owner in zip(ranges(s.starts, s.ends), instances.sequence_ids[s.starts], strict=True)
             if level_of[owner] == number]
            for s in (mixed, alone)
        ]  # fmt: skip
        assert theirs[0] == theirs[1]
        assert theirs[0]


def test_stages_go_from_basic_units_to_entities() -> None:
    masking = KnowledgeMasking(basic=0.5, phrase=0.2, entity=0.3)
    assert [share for share, _ in masking.stages] == [0.5, 0.2, 0.3]
    assert [stage.span_kinds for _, stage in masking.stages] == [set(), {"phrase"}, {"entity"}]
    assert [stage for _, stage in masking.stages] == [only("basic"), only("phrase"), only("entity")]
    assert masking.stage_names == ("basic units", "phrases", "entities")
    assert masking.span_kinds == {"phrase", "entity"}
    assert KnowledgeMasking(basic=0.5, phrase=0.5, entity=0).span_kinds == {"phrase"}
    mixed = masking.replace(order="mixed")
    assert mixed.stages == ((1.0, mixed),)
    assert mixed.stage_names == only("phrase").stage_names == ()


@pytest.mark.parametrize("masking", [KnowledgeMasking(), PMIMasking()], ids=["levels", "pmi"])
def test_a_text_without_the_spans_is_an_error(masking: KnowledgeMasking | PMIMasking) -> None:
    instances = batch_of([40] * 3)
    with pytest.raises(DataError, match=r"no 'phrase' annotations.*words\.phrases"):
        masking.select(instances, rng_for(instances))


@settings(max_examples=40)
@given(lengths, st.floats(0.3, 1), st.integers(0, 100))
def test_pmi_masking_is_whole_word_masking_with_phrases_for_words(lengths: list[int], share: float, seed: int) -> None:
    instances = with_levels(batch_of(lengths, seed, share), seed)
    as_words = replace(instances, word_starts=instances.span_starts["phrase"])
    chosen = PMIMasking(rate=0.3).select(instances, rng_for(instances, seed))
    expected = WholeWordMasking(rate=0.3).select(as_words, rng_for(instances, seed))
    assert ranges(chosen.starts, chosen.ends) == ranges(expected.starts, expected.ends)
    assert PMIMasking().provides == {"contiguous_units"}
    assert PMIMasking().span_kinds == {"phrase"}
