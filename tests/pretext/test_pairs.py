"""Pairs: BERT's layout against a plain account of its algorithm, its published shares, and pairs of sentences."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import documents_of, lay_out, ranges, rows_of, within

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import generator
from maskwright.pretext.formats import ContiguousHalves, Format, SegmentPair, SentencePair

Row = tuple[list[int], list[int], int]


def told_plainly(corpus: list[list[list[int]]], max_length: int, seed: int, short: float, second: str) -> list[Row]:
    """BERT's and ALBERT's instances with lists of tokens, one token at a time: (A, B, label) of each."""
    instances: list[Row] = []
    for number, document in enumerate(corpus):
        random = generator(seed, "layout", seed + 1, number).random

        def randint(low: int, high: int, random: Callable[[], float] = random) -> int:
            return low + int(random() * (high - low + 1))

        def random_text(wanted: int, number: int = number, randint: Callable[[int, int], int] = randint) -> list[int]:
            for _ in range(10):
                other = randint(0, len(corpus) - 1)
                if other != number:
                    break
            text: list[int] = []
            for sentence in corpus[other][randint(0, len(corpus[other]) - 1) :]:
                text += sentence
                if len(text) >= wanted:
                    break
            return text

        target = randint(2, max_length - 3) if random() < short else max_length - 3
        chunk: list[list[int]] = []
        cursor = 0
        while cursor < len(document):
            chunk.append(document[cursor])
            cursor += 1
            if cursor < len(document) and sum(map(len, chunk)) < target:
                continue
            several, label, limit = len(chunk) > 1, -1, max_length - 3
            a_end = randint(1, len(chunk) - 1) if several else 1
            texts = [list(chain.from_iterable(part)) for part in (chunk[:a_end], chunk[a_end:])]
            if second == "next_or_random":
                label = int(not several or random() < 0.5)
                if label:
                    texts[1] = random_text(target - len(texts[0]))
                    cursor -= len(chunk) - a_end
            elif several and second != "next":
                label = int(random() < 0.5)
                if label:
                    texts.reverse()
            elif not several and second == "next_swapped_or_random":
                label, texts[1] = 1, random_text(target - len(texts[0]))
            elif not several:
                limit += 1
            while sum(map(len, texts)) > limit:
                longer = texts[0] if len(texts[0]) > len(texts[1]) else texts[1]
                del longer[0 if random() < 0.5 else -1]
            instances.append((texts[0], texts[1], label))
            chunk = []
    return instances


def as_lists(lengths: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    tokens = iter(range(sum(map(sum, lengths))))
    return [[[next(tokens) for _ in range(length)] for length in document] for document in lengths]


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=6)
SWAPPING = ["next_or_swapped", "next_swapped_or_random"]
SECONDS = st.sampled_from(["next_or_random", "next", *SWAPPING])


@settings(max_examples=120)
@given(corpora, st.integers(8, 64), st.integers(0, 5), st.sampled_from([0.0, 0.1, 1.0]), SECONDS)
def test_segment_pair_plan_equals_the_plain_account_and_fits(lengths, max_length, seed, short, second):
    format = SegmentPair.model_validate({"second": second, "short_share": short})
    documents = documents_of(lengths)
    plan = format.plan(documents, max_length, seed, mask_sample=seed + 1)
    assert rows_of(plan) == told_plainly(as_lists(lengths), max_length, seed, short, second)
    assert (plan.first_end > plan.first_start).all()
    is_pair, laid_out = plan.second_end > plan.second_start, lay_out(format, documents, plan)
    assert laid_out.lengths.max() <= max_length
    assert (is_pair == (laid_out.segment_ids[laid_out.cu_seqlens[1:] - 1] == 1)).all()
    labeled = plan.pair_labels >= 0
    assert not labeled.any() if second == "next" else np.array_equal(labeled, is_pair)
    assert labeled.all() or second in ("next", "next_or_swapped")


@pytest.mark.parametrize("second", SWAPPING)
def test_half_of_the_pairs_of_several_sentences_are_swapped(second: str) -> None:
    documents = documents_of([[20] * 12] * 4000)
    plan = SegmentPair.model_validate({"second": second, "short_share": 0}).plan(documents, 128, seed=4, mask_sample=0)
    swapped = plan.second_start < plan.first_start
    assert np.array_equal(plan.pair_labels, swapped)
    assert within(swapped.mean(), 0.5, len(plan))


def test_one_sentence_has_no_order_in_the_paper_and_is_labeled_swapped_in_the_code() -> None:
    documents = documents_of([[30]] * 500)
    paper = SegmentPair(second="next_or_swapped").plan(documents, 64, seed=0, mask_sample=0)
    assert (paper.pair_labels == -1).all()
    assert not (paper.second_end > 0).any()
    code = SegmentPair(second="next_swapped_or_random").plan(documents, 64, seed=0, mask_sample=0)
    assert (code.pair_labels == 1).all()
    assert (code.second_start // 30 != code.first_start // 30).all()
    assert len(paper) == len(code) == 500


def test_segment_pair_without_next_sentence_prediction_loses_no_text() -> None:
    # 25 tokens fill the room of 125 exactly, so nothing needs to be cut.
    documents = documents_of([[25] * number for number in range(1, 60)])
    plan = SegmentPair(second="next", short_share=0).plan(documents, 128, seed=1, mask_sample=0)
    used = np.sort(np.concatenate([first + second for first, second, _ in rows_of(plan)]))
    assert np.array_equal(used, np.arange(len(used)))
    assert len(used) == documents.num_tokens
    joined = (plan.second_end > 0) & (plan.second_start != plan.first_end)
    assert not joined.any()


@pytest.mark.parametrize(("sentences", "share"), [(1, 1.0), (2, 0.668), (3, 0.628), (10, 0.587), (50, 0.552)])
def test_segment_pair_share_of_random_pairs_is_that_of_the_original(sentences: int, share: float) -> None:
    number = 24_000 // sentences
    documents = documents_of([[20] * sentences] * number)
    labels = SegmentPair().plan(documents, 128, seed=11, mask_sample=0).pair_labels
    # The shares are known to three digits.
    assert abs(labels.mean() - share) < 0.0005 + 4.5 * np.sqrt(share * (1 - share) / len(labels))


def test_segment_pair_draws_a_short_target_for_one_document_in_ten() -> None:
    documents = documents_of([[1] * 125] * 4000)
    plan = SegmentPair(second="next").plan(documents, 128, seed=2, mask_sample=0)
    spans = plan.second_end - plan.first_start
    document = plan.first_start // 125
    whole = np.bincount(document, minlength=4000) == 1
    # A short target of 2..125 cuts a document of 125 one-token sentences up, unless it is 125 itself.
    assert within(1 - whole.mean(), 0.1 * 123 / 124, 4000)
    targets = spans[np.flatnonzero(np.diff(document, prepend=-1))][~whole]
    assert targets.min() >= 2
    assert abs(targets.mean() - (2 + 124) / 2) < 4.5 * 123 / np.sqrt(12 * len(targets))


@pytest.mark.parametrize("format", [SegmentPair(), ContiguousHalves(short_share=1)])
def test_lengths_without_room_are_refused(format: Format) -> None:
    with pytest.raises(RecipeError, match="at least 5"):
        format.plan(documents_of([[5, 5]]), 4, 0, 0)
    assert len(format.plan(documents_of([[5, 5]]), 5, 0, 0))


# RoBERTa's pairs of single sentences.


@settings(max_examples=80)
@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=10), min_size=2, max_size=5))
def test_sentence_pair_pairs_whole_sentences_and_uses_each(lengths: list[list[int]]) -> None:
    documents, format = documents_of(lengths), SentencePair()
    plan = format.plan(documents, 32, seed=4, mask_sample=0)
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
    plan = SentencePair().plan(documents, 128, seed=8, mask_sample=0)
    has_next = plan.first_end % 2100 != 0  # the last sentence of a document has no next one
    assert within((plan.pair_labels[has_next] == 0).mean(), 0.5, int(has_next.sum()))
    assert (plan.pair_labels[~has_next] == 1).all()
    jumps = plan.pair_labels == 1
    same = plan.first_start[jumps] // 2100 == plan.second_start[jumps] // 2100
    assert same.mean() < 0.001
    assert SentencePair().provides == {"next_sentence_label"}
