"""Spans: lengths as published, the budget met exactly, and the same spans as a plain loop lays."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, documents_of, lay_out, one_of, ranges, rng_for

from maskwright.core.randomness import RandomNumbers, keys, uniform
from maskwright.core.types import Instances
from maskwright.pretext.formats import SegmentPair
from maskwright.pretext.masking import SpanMasking

lengths = st.lists(st.integers(3, 90), min_size=1, max_size=8)
maskings = st.builds(
    SpanMasking,
    rate=st.sampled_from([0.15, 0.4, 0.85]),
    geometric_p=st.sampled_from([0.05, 0.2, 0.6]),
    longest_span=st.sampled_from([1, 3, 10]),
    max_targets=st.sampled_from([None, 6]),
)


def spans_of(masking: SpanMasking, sequence: Instances, rng: RandomNumbers) -> list[tuple[int, int]]:
    """Lay the spans of one sequence word by word and token by token, as the class's docstring says."""
    size = len(sequence.ids)
    ordinary = [token for token in range(size) if not sequence.special[token]]
    (budget,) = masking.budgets(sequence, rng).tolist()
    budget = min(budget, len(ordinary))
    anchor_key = keys(rng.seed, "masking anchor", rng.epoch, rng.index)
    length_key = keys(rng.seed, "masking length", rng.epoch, rng.index)

    def word_end(token: int) -> int:
        token += 1
        while token < size and not sequence.word_starts[token]:
            token += 1
        return token

    def word_start(token: int) -> int:
        while not sequence.word_starts[token]:
            token -= 1
        return token

    masked: set[int] = set()
    number = 0
    while len(masked) < budget:
        anchor = ordinary[int(uniform(anchor_key, number)[0] * len(ordinary))]
        drawn, wanted = uniform(length_key, number)[0], 1
        reached = masking.length_probabilities[0]
        while drawn >= reached and wanted < masking.longest_span:
            reached += masking.length_probabilities[wanted]
            wanted += 1
        number += 1
        if anchor in masked:
            continue
        start = word_start(anchor)
        for _ in range(wanted):
            if start >= size or sequence.special[start] or len(masked) == budget:
                break
            end = word_end(start)
            fresh = [token for token in range(start, end) if token not in masked]
            masked |= set(fresh[: budget - len(masked)])
            start = end
    runs: list[tuple[int, int]] = []
    for token in sorted(masked):
        if runs and runs[-1][1] == token:
            runs[-1] = (runs[-1][0], token + 1)
        else:
            runs.append((token, token + 1))
    return runs


@settings(max_examples=80)
@given(maskings, lengths, st.floats(0.2, 1), st.integers(0, 1000))
def test_spans_are_those_of_the_plain_loop(masking: SpanMasking, lengths: list[int], share: float, seed: int) -> None:
    instances = batch_of(lengths, seed, share)
    selection = masking.select(instances, rng_for(instances, seed, first_index=5))
    expected = []
    for number in range(len(instances)):
        single = one_of(instances, number)
        offset = int(instances.cu_seqlens[number])
        spans = spans_of(masking, single, rng_for(single, seed, first_index=5 + number))
        expected += [(start + offset, end + offset) for start, end in spans]
    assert ranges(selection.starts, selection.ends) == expected


def test_drawn_lengths_follow_their_shares() -> None:
    # Words of one token and a budget of 10 in 3000: the unit that begins at the first anchor is the first span, except
    # that another one touches it, or the text ends, about once in a hundred sequences.
    count, tokens = 2000, 3000
    instances = batch_of([tokens + 2] * count)
    selection = SpanMasking(max_targets=10).select(instances, rng_for(instances, seed=11))
    drawn = uniform(keys(11, "masking anchor", np.zeros(count), np.arange(count)), 0)
    anchors = instances.cu_seqlens[:-1] + 1 + (drawn * tokens).astype(np.int64)
    unit = np.searchsorted(selection.starts, anchors, side="right") - 1
    untouched = unit[selection.starts[unit] == anchors]
    assert len(untouched) > 0.99 * count
    observed = np.bincount((selection.ends - selection.starts)[untouched], minlength=11)[1:11] / len(untouched)
    for length, share in enumerate(SpanMasking().length_probabilities, start=1):
        assert abs(observed[length - 1] - share) < 4.5 * np.sqrt(share * (1 - share) / count) + 0.01


def test_spans_stop_at_the_separator_of_a_pair() -> None:
    documents = documents_of([[4] * 12] * 60)
    plan = SegmentPair().plan(documents, 32, seed=0, mask_sample=0)
    instances = lay_out(SegmentPair(), documents, plan)
    assert (instances.segment_ids == 1).any()
    masking = SpanMasking(rate=0.5, geometric_p=0.05)
    selection = masking.select(instances, rng_for(instances))
    assert len(selection.starts) > len(instances)
    inside = instances.segment_ids
    assert np.array_equal(inside[selection.starts], inside[selection.ends - 1])
    assert not instances.special[selection.positions].any()
