"""Special tokens, segments and word starts of laid-out sequences."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, reader

from maskwright.core.types import Instances, Plan
from maskwright.pretext.formats.base import assemble, sequence_lengths

CLS, SEP = SPECIAL.cls, SPECIAL.sep


def plan_of(*rows: tuple[int, int, int, int]) -> Plan:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    is_pair = columns[:, 3] > columns[:, 2]
    return Plan(
        first_start=columns[:, 0],
        first_end=columns[:, 1],
        second_start=columns[:, 2],
        second_end=columns[:, 3],
        pair_labels=np.where(is_pair, 0, -1).astype(np.int8),
    )


def by_hand(plan: Plan, between: int, points: list[int]) -> list[tuple[list[int], list[int], int]]:
    """Lay rows out one token at a time: (ids, segments, label) of each."""
    laid_out = []
    for row in zip(plan.first_start, plan.first_end, plan.second_start, plan.second_end, plan.pair_labels, strict=True):
        ids, segments = [CLS], [0]
        is_pair = row[3] > row[2]
        for segment, (start, end) in enumerate([row[0:2], row[2:4]]):
            if start == end:
                continue
            for token in range(start, end):
                if token in points and token > start:
                    ids.append(SEP)
                    segments.append(segment)
                ids.append(100 + token)
                segments.append(segment)
            closing = between if segment == 0 and is_pair else 1
            ids += [SEP] * closing
            segments += [segment] * closing
        laid_out.append((ids, segments, int(row[4])))
    return laid_out


def split(laid_out: Instances) -> list[tuple[list[int], list[int], int]]:
    cuts = laid_out.cu_seqlens[1:-1]
    parts = zip(np.split(laid_out.ids, cuts), np.split(laid_out.segment_ids, cuts), laid_out.pair_labels, strict=True)
    return [(ids.tolist(), segments.tolist(), int(label)) for ids, segments, label in parts]


texts = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda text: (text[0], text[0] + text[1]))
rows = st.tuples(texts, st.one_of(texts, st.just((0, 0)))).map(lambda row: (*row[0], *row[1]))


@settings(max_examples=75)
@given(st.lists(rows, min_size=1, max_size=8), st.sampled_from([1, 2]), st.sets(st.integers(0, 52)))
def test_assemble_equals_layout_by_hand(chosen, between, points):
    plan, at = plan_of(*chosen), np.array(sorted(points), dtype=np.int64)
    take = reader(100 + np.arange(60))
    laid_out = assemble(plan, take, SPECIAL, num_separators_between=between, separator_points=at)
    assert (laid_out.ids.dtype, laid_out.segment_ids.dtype) == (np.int32, np.int8)
    assert split(laid_out) == by_hand(plan, between, sorted(points))
    assert np.array_equal(laid_out.special, laid_out.ids < 100)
    if between == 1:
        assert np.array_equal(sequence_lengths(plan, at), laid_out.lengths)
