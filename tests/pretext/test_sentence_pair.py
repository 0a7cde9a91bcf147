"""RoBERTa's pairs of single sentences."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import documents_of, lay_out, ranges, within

from maskwright.pretext.formats import SentencePair


@settings(max_examples=80)
@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=10), min_size=2, max_size=5))
def test_sentence_pair_pairs_whole_sentences_and_uses_each(lengths: list[list[int]]) -> None:
    documents, format = documents_of(lengths), SentencePair()
    plan = format.plan(documents, 32, seed=4, refresh=0)
    bounds = [0, *documents.sentence_ends.tolist()]
    sentences = list(pairwise(bounds))
    firsts, seconds = ranges(plan.first_start, plan.first_end), ranges(plan.second_start, plan.second_end)
    assert set(firsts) | set(seconds) <= set(sentences)
    following = plan.pair_labels == 0
    assert (plan.second_start == plan.first_end)[following].all()
    used = firsts + [second for second, real in zip(seconds, following.tolist(), strict=True) if real]
    assert sorted(used) == sentences
    laid_out = lay_out(format, documents, plan)
    expected = (plan.first_end - plan.first_start) + (plan.second_end - plan.second_start) + 3
    assert np.array_equal(laid_out.lengths, expected)


def test_sentence_pair_follows_half_of_the_time_and_jumps_elsewhere_otherwise() -> None:
    documents = documents_of([[7] * 300] * 50)
    plan = SentencePair().plan(documents, 128, seed=8, refresh=0)
    has_next = plan.first_end % 2100 != 0  # the last sentence of a document has no next one
    assert within((plan.pair_labels[has_next] == 0).mean(), 0.5, int(has_next.sum()))
    assert (plan.pair_labels[~has_next] == 1).all()
    jumps = plan.pair_labels == 1
    same = plan.first_start[jumps] // 2100 == plan.second_start[jumps] // 2100
    assert same.mean() < 0.001
    assert SentencePair().provides == {"next_sentence_label"}
