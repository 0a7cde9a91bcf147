"""ELECTRA's layout, against a plain account of its algorithm, and its published shares."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import documents_of, lay_out, rows_of, within

from maskwright.core.randomness import generator
from maskwright.pretext.formats import ContiguousHalves

Row = tuple[list[int], list[int], int]


def told_plainly(lengths: Sequence[Sequence[int]], max_length: int, seed: int, format: ContiguousHalves) -> list[Row]:
    """ELECTRA's examples with lists of tokens, one sentence at a time: (A, B, no label) of each."""
    specials = 3
    tokens = iter(range(sum(map(sum, lengths))))
    examples: list[Row] = []
    for number, document in enumerate(lengths):
        rng = generator(seed, "layout", 0, number)
        buffer: list[list[int]] = []

        def redrawn(rng: np.random.Generator = rng) -> int:
            if rng.random() < format.short_share:
                return 5 + int(rng.random() * (max_length - 5 + 1))
            return max_length

        target = redrawn()
        for index, length in enumerate(document):
            buffer.append([next(tokens) for _ in range(length)])
            if sum(map(len, buffer)) < target and index < len(document) - 1:
                continue
            half = 100_000 if rng.random() < format.single_share else (target - specials) // 2
            first: list[int] = []
            second: list[int] = []
            for sentence in buffer:
                if (
                    not first
                    or (not second and len(first) + len(sentence) < half)
                    or (not second and len(first) < half and rng.random() < 0.5)
                ):
                    first += sentence
                else:
                    second += sentence
            first = first[: max_length - 2]
            second = second[: max(0, max_length - len(first) - specials)]
            examples.append((first, second, -1))
            buffer = []
            if index < len(document) - 1:
                target = redrawn()
    return examples


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=15), min_size=1, max_size=6)


@settings(max_examples=100)
@given(
    corpora,
    st.integers(6, 70),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.05, 1.0]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_plan_equals_the_plain_account_fits_and_halves_are_neighbors(lengths, max_length, seed, short, single):
    documents, format = documents_of(lengths), ContiguousHalves(short_share=short, single_share=single)
    plan = format.plan(documents, max_length, seed, mask_sample=0)
    assert rows_of(plan) == told_plainly(lengths, max_length, seed, format)
    assert (plan.first_end > plan.first_start).all()
    has_second = plan.second_end > plan.second_start
    assert (plan.second_start[has_second] == plan.first_end[has_second]).all()
    laid_out = lay_out(format, documents, plan)
    assert laid_out.lengths.max() <= max_length
    assert ((laid_out.segment_ids[laid_out.cu_seqlens[1:] - 1] == 1) == has_second).all()


def test_shares_are_those_of_the_original() -> None:
    # 128 one-token sentences: a target of 128 takes all of them, of which 125 fit beside three specials.
    documents = documents_of([[1] * 128] * 20_000)
    plan = ContiguousHalves().plan(documents, 128, seed=1, mask_sample=0)
    document = plan.first_start // 128
    firsts = np.flatnonzero(np.diff(document, prepend=-1))
    whole = np.bincount(document, minlength=20_000) == 1
    # A short target is 5..128; 128 is as long as the others.
    assert within(1 - whole.mean(), 0.05 * 123 / 124, 20_000)
    single = plan.second_end == 0
    assert within(single[firsts].mean(), 0.1, 20_000)
    full = firsts[whole & ~single[firsts]]
    halves = plan.first_end[full] - plan.first_start[full]
    # The half is (128 - 3) // 2 = 62: 61 tokens stay below it, the 62nd is in by a coin.
    assert set(halves.tolist()) == {61, 62}
    assert within((halves == 62).mean(), 0.5, len(halves))
    assert set((plan.second_end - plan.second_start)[full].tolist()) == {63, 64}
    alone = firsts[whole & single[firsts]]
    assert set((plan.first_end - plan.first_start)[alone].tolist()) == {126}
