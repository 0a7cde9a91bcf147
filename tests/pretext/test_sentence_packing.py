"""RoBERTa's FULL-SENTENCES and DOC-SENTENCES."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, documents_of, lay_out, ranges

from maskwright.core.errors import RecipeError
from maskwright.pretext.formats import DocSentences, FullSentences

Packed = FullSentences | DocSentences


def told_plainly(lengths: list[list[int]], limit: int, crosses: bool, every_sentence: bool) -> list[list[int]]:
    """Pack one sentence at a time: the tokens of each row, with None where a separator stands within it."""
    rows: list[list[int | None]] = []
    row: list[int | None] = []
    token = 0
    for document in lengths:
        if not crosses and row:
            rows.append(row)
            row = []
        for number, length in enumerate(document):
            sentence = list(range(token, token + length))
            token += length
            joint = [None] if row and (every_sentence or number == 0) else []
            if len(row) + len(joint) + length <= limit:
                row = row + joint + sentence
                continue
            if row:
                rows.append(row)
            while len(sentence) > limit:
                rows.append(sentence[:limit])
                sentence = sentence[limit:]
            row = list(sentence)
    if row:
        rows.append(row)
    return rows


formats = st.builds(
    lambda member, after: member(separator_after=after),
    st.sampled_from([FullSentences, DocSentences]),
    st.sampled_from(["document", "sentence"]),
)


@settings(max_examples=120)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=10), min_size=1, max_size=8),
    st.integers(3, 40),
    formats,
)
def test_packing_equals_the_plain_account(lengths: list[list[int]], max_length: int, format: Packed) -> None:
    documents = documents_of(lengths)
    plan = format.plan(documents, max_length, seed=0, mask_sample=0)
    laid_out = lay_out(format, documents, plan)
    crosses, every = isinstance(format, FullSentences), format.separator_after == "sentence"
    expected = [
        [SPECIAL.cls, *[SPECIAL.sep if token is None else 100 + token for token in row], SPECIAL.sep]
        for row in told_plainly(lengths, max_length - 2, crosses, every)
    ]
    assert [row.tolist() for row in np.split(laid_out.ids, laid_out.cu_seqlens[1:-1])] == expected
    assert laid_out.lengths.max() <= max_length
    assert laid_out.ids[~laid_out.special].tolist() == list(range(100, 100 + sum(map(sum, lengths))))
    assert not laid_out.segment_ids.any()
    assert (laid_out.pair_labels == -1).all()


def test_full_sentences_of_a_subset_do_not_reach_over_its_gaps() -> None:
    documents = documents_of([[3], [4], [5], [2], [2]])
    subset = documents.pick(np.array([0, 1, 3, 4]))
    plan = FullSentences().plan(subset, 64, 0, 0)
    assert ranges(plan.first_start, plan.first_end) == [(0, 7), (12, 16)]


def test_packing_refuses_lengths_without_room() -> None:
    with pytest.raises(RecipeError, match="at least 3"):
        DocSentences().plan(documents_of([[4]]), 2, 0, 0)
