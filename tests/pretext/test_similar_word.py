"""Similar words instead of mask tokens: 80/10/10 per word, the same length, and what happens where there is none."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, VOCABULARY, batch_of, looks_uniform, repeated, rng_for, within
from similar_tables import Word, knowing, table_of

from maskwright.core.randomness import RandomNumbers
from maskwright.core.similar_words import SimilarWords
from maskwright.core.types import Instances, IntArray, Selection
from maskwright.pretext.masking import Masking, NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from maskwright.pretext.replacement import SimilarWord, VocabularyFacts
from maskwright.pretext.replacement.base import corrupt

MASKINGS: list[Masking] = [
    TokenMasking(rate=0.3),
    TokenMasking(candidates="all"),
    WholeWordMasking(),
    SpanMasking(),
    NgramMasking(length_shares=(0.4, 0.3, 0.2, 0.1), budget="words", order="left_to_right", rounding="down"),
]


def few_ids(lengths: list[int], seed: int = 0, share_of_word_starts: float = 0.6) -> Instances:
    """Make texts over few ids, 5 to 12, so that words of a table occur."""
    made = batch_of(lengths, seed, share_of_word_starts)
    ids = np.where(made.special, made.ids, 5 + made.ids % 8).astype(np.int32)
    return dataclasses.replace(made, ids=ids)


def words_in_a_row(word: Word, number: int) -> tuple[Instances, Selection]:
    """Sequences of ten times the same word, every word a selected unit of its own."""
    instances = repeated([word] * 10, number // 10)
    starts = np.flatnonzero(instances.word_starts & ~instances.special)
    return instances, Selection(starts, starts + len(word))


def replaced(word: Word, number: int, table: SimilarWords, replacement: SimilarWord | None = None) -> IntArray:
    instances, selection = words_in_a_row(word, number)
    made = replacement or SimilarWord()
    after = made.replace_tokens(instances, selection, rng_for(instances), knowing(VOCABULARY, table))
    return after[selection.positions].reshape(-1, len(word))


def test_words_are_similar_random_and_kept_80_10_10() -> None:
    table = table_of({(5, 6): [(20, 21), (22, 23)]}, [(30, 31), (32, 33)])
    after = replaced((5, 6), 50_000, table)
    similar, random = np.isin(after[:, 0], [20, 22]), np.isin(after[:, 0], [30, 32])
    kept = (after == (5, 6)).all(axis=1)
    assert (similar | random | kept).all()
    for share, observed in ((0.8, similar), (0.1, random), (0.1, kept)):
        assert within(float(observed.mean()), share, len(after))
    # Candidates and random words are drawn uniformly, and whole.
    assert looks_uniform(np.array([(after == pair).all(axis=1).sum() for pair in ((20, 21), (22, 23))]))
    assert looks_uniform(np.array([(after == pair).all(axis=1).sum() for pair in ((30, 31), (32, 33))]))


def test_where_the_corpus_has_no_word_of_a_length_tokens_are_drawn_without_special_ones() -> None:
    after = replaced((5, 6), 100_000, table_of({}, [(30,)]), SimilarWord(similar=0, random=1, keep=0))
    counts = np.bincount(after.ravel(), minlength=SPECIAL.vocab_size)
    never = sorted({SPECIAL.pad, SPECIAL.unk, SPECIAL.cls, SPECIAL.sep, SPECIAL.mask})
    assert not counts[never].any()
    assert len(counts) == SPECIAL.vocab_size
    assert looks_uniform(np.delete(counts, never))


def selected_shares(share_known: float, masking: Masking, replacement: SimilarWord) -> tuple[dict[str, float], float]:
    """Corrupt text in which some of 40 words have a similar one: shares of the outcomes, and of selected tokens."""
    instances = few_ids([128] * 1500, share_of_word_starts=1.0)
    ids = np.where(instances.special, instances.ids, 5 + np.random.default_rng(1).integers(0, 40, len(instances.ids)))
    instances = dataclasses.replace(instances, ids=ids.astype(np.int32))
    facts = knowing(VOCABULARY, table_of({(5 + n,): [(50,)] for n in range(round(40 * share_known))}, [(60,)]))
    examples = corrupt(instances, masking, replacement, rng_for(instances), facts)
    outcomes = replacement.outcomes(instances, examples.selection, rng_for(instances), facts)
    seen = examples.corrupted[examples.selection.positions]
    total = len(seen)
    assert sum(outcomes.values()) == total
    assert outcomes["similar word"] == (seen == 50).sum()
    assert outcomes["random word"] + outcomes["random word (no similar word)"] == (seen == 60).sum()
    return {name: count / total for name, count in outcomes.items()}, total / len(ids)


@pytest.mark.parametrize("share_known", [1.0, 0.95, 0.6, 0.3])
@pytest.mark.parametrize("masking", [MASKINGS[2], MASKINGS[4]])
def test_the_decisions_do_not_depend_on_what_the_table_covers(share_known: float, masking: Masking) -> None:
    shares, selected = selected_shares(share_known, masking, SimilarWord())
    fallbacks = min(0.1, 0.8 * (1 - share_known))
    assert shares["similar word"] == pytest.approx(0.8 - fallbacks, abs=0.015)
    assert shares["random word"] == pytest.approx(0.1, abs=0.01)
    assert shares["random word (no similar word)"] == pytest.approx(fallbacks, abs=0.01)
    assert shares["kept"] == pytest.approx(0.1, abs=0.01)
    # Other words are selected instead, so the budget is met as if all words had a similar one.
    assert selected == pytest.approx(selected_shares(1.0, masking, SimilarWord())[1], rel=0.01)


def test_words_with_a_similar_one_are_replaced_80_10_10_beside_words_without() -> None:
    instances = repeated([(5,), (6,)] * 5, 5000)
    starts = np.flatnonzero(~instances.special)
    facts = knowing(VOCABULARY, table_of({(5,): [(50,)]}, [(60,)]))
    after = SimilarWord().replace_tokens(instances, Selection(starts, starts + 1), rng_for(instances), facts)
    for word, shares in ((5, {50: 0.8, 60: 0.1, 5: 0.1}), (6, {60: 0.9, 6: 0.1})):
        seen = after[instances.ids == word]
        assert sum(int((seen == id).sum()) for id in shares) == len(seen)
        for id, share in shares.items():
            assert within(float((seen == id).mean()), share, len(seen))


@pytest.mark.parametrize("limit", [0.0, 0.05, 0.3, 1.0])
def test_words_without_a_similar_one_are_selected_up_to_their_limit(limit: float) -> None:
    shares, _ = selected_shares(0.5, MASKINGS[2], SimilarWord(max_fallback_rate=limit))
    assert shares["random word (no similar word)"] == pytest.approx(min(limit, 0.8 * 0.5), abs=0.012)
    assert shares["random word"] == pytest.approx(0.1, abs=0.01)
    assert shares["kept"] == pytest.approx(0.1, abs=0.01)


def plainly(
    instances: Instances, selection: Selection, rng: RandomNumbers, similar: dict[Word, list[Word]], random: list[Word]
) -> tuple[IntArray, dict[str, int]]:
    """The same, word by word: an independent oracle of the defaults."""
    corrupted, counted = instances.ids.copy(), {"similar": 0, "random": 0, "no similar": 0, "kept": 0}

    def number(purpose: str, at: int) -> float:
        sequence = int(np.searchsorted(instances.cu_seqlens, at, side="right") - 1)
        offset = at - instances.cu_seqlens[sequence]
        return float(rng.uniform_at(purpose, np.array([sequence]), np.array([offset]))[0])

    def put(low: int, high: int, options: list[Word]) -> None:
        if options:
            corrupted[low:high] = options[int(number("replacement word", low) * len(options))]
            return
        ordinary = [id for id in range(SPECIAL.vocab_size) if id not in (0, 1, 2, 3, 4)]
        for at in range(low, high):
            corrupted[at] = ordinary[int(number("replacement token", at) * len(ordinary))]

    def words_of(start: int, end: int) -> list[tuple[int, int]]:
        return list(pairwise([start, *(at for at in range(start + 1, end) if instances.word_starts[at]), end]))

    for begin, stop in pairwise(instances.cu_seqlens.tolist()):
        runs = zip(selection.starts.tolist(), selection.ends.tolist(), strict=True)
        for low, high in (word for start, end in runs if begin <= start < stop for word in words_of(start, end)):
            word, of_length = tuple(instances.ids[low:high].tolist()), [w for w in random if len(w) == high - low]
            decision = number("replacement decision", low)
            if decision < 0.8:
                outcome = "similar" if word in similar else "no similar"
            else:
                outcome = "random" if decision < 1 - 0.1 else "kept"
            counted[outcome] += high - low
            if outcome != "kept":
                put(low, high, similar[word] if outcome == "similar" else of_length)
    return corrupted, counted


@given(
    lengths=st.lists(st.integers(2, 60), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    masking=st.sampled_from(MASKINGS),
)
@settings(max_examples=60)
def test_it_equals_the_rule_applied_word_by_word(lengths: list[int], seed: int, masking: Masking) -> None:
    instances = few_ids(lengths, seed)
    before, rng = instances.ids.copy(), rng_for(instances, seed)
    selection = masking.select(instances, rng)
    similar = {(5,): [(6,), (7,)], (5, 6): [(8, 9)], (7, 8): [(9, 5), (6, 6), (5, 6)], (6, 7, 8): [(8, 8, 8)]}
    random: list[Word] = [(50,), (51,), (52, 53), (54, 55)]
    facts = knowing(VOCABULARY, table_of(similar, random))
    expected, counted = plainly(instances, selection, rng, similar, random)
    after = SimilarWord().replace_tokens(instances, selection, rng, facts)
    assert np.array_equal(after, expected)
    assert np.array_equal(instances.ids, before)
    assert after.dtype == np.int32
    assert not (after == SPECIAL.mask).any()
    outcomes = SimilarWord().outcomes(instances, selection, rng, facts)
    assert list(outcomes.values()) == list(counted.values())


# The worked example: 使用 语言 模型 来 预测 , 语言模型 selected as one unit of four characters.
CHARACTERS = {character: 100 + index for index, character in enumerate("使用语言模型来预测法建统计文")}


def ids_of(text: str) -> Word:
    return tuple(CHARACTERS[character] for character in text)


@pytest.mark.parametrize(
    ("words", "similar", "expected"),
    [
        # An n-gram counts whole words: 语言 and 模型 are two, each is decided and replaced by itself.
        (["语言", "模型"], {"语言": ["语法"], "模型": ["建模"]}, "语法建模"),
        # A segmenter that knows 语言模型 as one word: one decision, one similar word of four characters.
        (["语言模型"], {"语言模型": ["统计文法"], "语言": ["语法"], "模型": ["建模"]}, "统计文法"),
    ],
)
def test_an_n_gram_becomes_a_similar_phrase_and_never_mask_tokens(words, similar, expected):
    instances = repeated([ids_of(word) for word in ["使用", *words, "来", "预测"]])
    unit = Selection(np.array([3]), np.array([7]))
    table = table_of({ids_of(word): [ids_of(other) for other in others] for word, others in similar.items()})
    facts = VocabularyFacts(special_tokens=SPECIAL, similar_words=table)
    after = SimilarWord(similar=1, random=0, keep=0).replace_tokens(instances, unit, rng_for(instances), facts)
    names = {id: character for character, id in CHARACTERS.items()}
    assert "".join(names[id] for id in after[1:-1].tolist()) == f"使用{expected}来预测"
    # With 80/10/10 the unit takes one of few forms, decided per word, and the rest never moves.
    for index in range(50):
        rng = rng_for(instances, first_index=index)
        seen = SimilarWord().replace_tokens(instances, unit, rng, facts)
        assert SPECIAL.mask not in seen
        assert np.array_equal(np.delete(seen, range(3, 7)), np.delete(instances.ids, range(3, 7)))
