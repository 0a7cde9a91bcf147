"""Windows of words, against plain accounts of both ways to place them, and their published shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, looks_uniform, ranges, rng_for, within
from pydantic import ValidationError

from maskwright.core.randomness import RandomNumbers, bits
from maskwright.core.types import Instances
from maskwright.pretext.masking import NgramMasking

ALBERT = NgramMasking()
CAPPED = NgramMasking(max_targets=20)
IN_WORDS = NgramMasking(budget="words", rate=0.3, candidates="all")
MACBERT = NgramMasking(
    length_shares=(0.4, 0.3, 0.2, 0.1),
    budget="words",
    order="left_to_right",
    rounding="down",
    rate_relative_to="ordinary",
)
ALL_MACBERT = MACBERT.replace(candidates="all", rate=0.5)

Words = list[list[int]]
"""The words of a text as lists of token offsets."""


def pairs_of(lengths: list[int], seed: int, share: float) -> Instances:
    """Sequences with further separators among their tokens."""
    instances = batch_of(lengths, seed, share)
    special = instances.special | (np.random.default_rng(seed + 1).random(len(instances.ids)) < 0.08)
    word_starts = instances.word_starts | special
    word_starts[1:] |= special[:-1]
    return replace(instances, special=special, word_starts=word_starts)


def texts_of(instances: Instances, number: int, candidates: str) -> list[Words]:
    """Walk over one sequence token by token: its texts, each a list of words; specials are texts of their own."""
    low, high = instances.cu_seqlens[number : number + 2].tolist()
    texts: list[Words] = [[]]
    for token in range(low, high):
        if instances.special[token]:
            texts += [[[token]], []] if candidates == "all" else [[]]
        elif instances.word_starts[token] or not texts[-1]:
            texts[-1].append([token])
        else:
            texts[-1][-1].append(token)
    return [text for text in texts if text]


def length_drawn(masking: NgramMasking, rng: RandomNumbers, number: int, counter: int) -> int:
    uniform = float(rng.uniform_at("masking length", np.array([number]), np.array([counter]))[0])
    length, passed = 1, masking.length_shares[0]
    while uniform >= passed and length < len(masking.length_shares):
        passed += masking.length_shares[length]
        length += 1
    return length


def visiting_order(rng: RandomNumbers, number: int, offsets: list[int]) -> list[int]:
    numbers = bits(rng.keys("masking order")[number], np.array(offsets))
    return sorted(range(len(offsets)), key=lambda place: (int(numbers[place]) >> 36, offsets[place]))


def told_plainly(masking: NgramMasking, instances: Instances, rng: RandomNumbers) -> list[tuple[int, int]]:
    """Windows in random order, one at a time, as ALBERT's code goes about it."""
    units = []
    for number, budget in enumerate(masking.budgets(instances, rng).tolist()):
        low = int(instances.cu_seqlens[number])
        windows = [
            text[first:] for text in texts_of(instances, number, masking.candidates) for first in range(len(text))
        ]
        offsets = [window[0][0] - low for window in windows]
        covered: set[int] = set()
        spent = 0
        for index in visiting_order(rng, number, offsets):
            length = length_drawn(masking, rng, number, offsets[index])
            while length:
                words = windows[index][:length]
                tokens = [token for word in words for token in word]
                cost = len(words) if masking.budget == "words" else len(tokens)
                if spent + cost <= budget:
                    break
                length -= 1
            if not length or covered & set(tokens):
                continue
            covered |= set(tokens)
            spent += cost
            units.append((tokens[0], tokens[-1] + 1))
    return sorted(units)


def told_from_left_to_right(masking: NgramMasking, instances: Instances, rng: RandomNumbers) -> list[tuple[int, int]]:
    """Pointers that walk from left to right, one word at a time."""
    units = []
    for number, budget in enumerate(masking.budgets(instances, rng).tolist()):
        low = int(instances.cu_seqlens[number])
        texts = texts_of(instances, number, masking.candidates)
        words = [word for text in texts for word in text]
        text_of = [which for which, text in enumerate(texts) for _ in text]
        budget = min(budget, len(words))
        lengths: list[int] = []
        while sum(lengths) < budget:
            lengths.append(min(length_drawn(masking, rng, number, len(lengths)), budget - sum(lengths)))
        starts = [word[0] - low for word in words[: len(words) - budget + len(lengths)]]
        pointers = sorted(visiting_order(rng, number, starts)[: len(lengths)])
        moved = 0
        for pointer, length in zip(pointers, lengths, strict=True):
            window = range(pointer + moved, pointer + moved + length)
            moved += length - 1
            for text in sorted({text_of[word] for word in window}):
                inside = [token for word in window if text_of[word] == text for token in words[word]]
                units.append((inside[0], inside[-1] + 1))
    return units


batches = st.lists(st.integers(3, 90), min_size=1, max_size=10)


MASKINGS = [ALBERT, CAPPED, IN_WORDS, ALBERT.replace(rate=0.6, length_shares=(0.1, 0, 0.2, 0.3, 0.4))]


@settings(max_examples=100)
@given(batches, st.floats(0.15, 1), st.integers(0, 1000), st.sampled_from([*MASKINGS, MACBERT, ALL_MACBERT]))
def test_windows_equal_the_plain_account(lengths: list[int], share: float, seed: int, masking: NgramMasking) -> None:
    instances = pairs_of(lengths, seed, share)
    rng = rng_for(instances, seed)
    selection = masking.select(instances, rng)
    account = told_plainly if masking.order == "random" else told_from_left_to_right
    assert ranges(selection.starts, selection.ends) == account(masking, instances, rng)


@pytest.mark.parametrize(
    ("masking", "shares", "mean"), [(ALBERT, [6 / 11, 3 / 11, 2 / 11], 18 / 11), (MACBERT, [0.4, 0.3, 0.2, 0.1], 2.0)]
)
def test_lengths_are_drawn_with_the_published_shares(masking: NgramMasking, shares: list[float], mean: float) -> None:
    assert sum(length * share for length, share in enumerate(masking.length_shares, 1)) == pytest.approx(mean)
    count = 200_000
    sequences, offsets = np.zeros(count, dtype=np.int64), np.arange(count)
    lengths = masking.lengths(rng_for(batch_of([count])).uniform_at("masking length", sequences, offsets))
    assert lengths.min() == 1
    assert lengths.max() == len(shares)
    for length, share in enumerate(shares, 1):
        assert within((lengths == length).mean(), share, count)
    assert abs(lengths.mean() - mean) < 4.5 * lengths.std() / np.sqrt(count)


@pytest.mark.parametrize("masking", [ALBERT, MACBERT], ids=["random", "left_to_right"])
def test_words_far_from_the_ends_are_equally_likely(masking: NgramMasking) -> None:
    instances = batch_of([102] * 8000)
    offsets = masking.select(instances, rng_for(instances)).positions % 102
    # Words in one window fall together, so chi-square is divided by their number.
    counts = np.bincount(offsets, minlength=102)[11:-11]
    assert looks_uniform(counts / 2)
    assert counts.mean() / 8000 == pytest.approx(0.15, rel=0.04)


def test_albert_masks_15_percent_of_the_tokens_or_20() -> None:
    instances = batch_of([512, 512, 128], share_of_word_starts=0.75)
    rng = rng_for(instances)

    def spent(masking: NgramMasking) -> list[int]:
        return np.bincount(instances.sequence_ids[masking.select(instances, rng).positions]).tolist()

    assert spent(ALBERT) == [77, 77, 19]
    assert spent(CAPPED) == [20, 20, 19]
    assert spent(CAPPED)[0] / 512 == pytest.approx(0.039, abs=5e-4)


def test_macbert_masks_15_percent_of_the_words_rounded_down() -> None:
    instances = batch_of([102, 101])  # 100 and 99 words
    selection = MACBERT.select(instances, rng_for(instances))
    assert np.bincount(instances.sequence_ids[selection.positions]).tolist() == [15, 14]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"length_shares": [0.5, 0.4]},
            r"length_shares\.0 0\.5 \+ length_shares\.1 0\.4 = 0\.9; make them add up to 1",
        ),
        ({"length_shares": []}, "length_shares"),
        ({"budget": "words", "max_targets": 20}, "max_targets 20 limits tokens"),
        ({"order": "left_to_right"}, "set budget to 'words' or order to 'random'"),
    ],
)
def test_choices_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NgramMasking.model_validate(fields)
