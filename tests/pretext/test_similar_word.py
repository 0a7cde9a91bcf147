"""Similar words instead of mask tokens: 80/10/10 per word, the same length, and what happens where there is none."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, VOCABULARY, batch_of, draws_for, looks_uniform, one_of, within
from pydantic import ValidationError
from similar_tables import Word, knowing, table_of

from maskwright.core.randomness import Draws
from maskwright.core.similar_words import SimilarWords
from maskwright.core.types import Instances, IntArray, Selection
from maskwright.pretext.masking import Masking, NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from maskwright.pretext.replacement import SimilarWord, VocabularyFacts

MASKINGS: list[Masking] = [
    TokenMasking(rate=0.3),
    TokenMasking(candidates="all"),
    WholeWordMasking(),
    SpanMasking(),
    NgramMasking(length_shares=(0.4, 0.3, 0.2, 0.1), budget="words", order="left_to_right", rounding="down"),
]
# Texts over few ids, so that words of the table occur: 5..12 are ordinary.
TABLE = table_of(
    {(5,): [(6,), (7,)], (5, 6): [(8, 9)], (7, 8): [(9, 5), (6, 6), (5, 6)], (6, 7, 8): [(8, 8, 8)]},
    [(10,), (11,), (10, 11), (11, 10), (12, 12)],
)


def few_ids(lengths: list[int], seed: int = 0, share_of_word_starts: float = 0.6) -> Instances:
    made = batch_of(lengths, seed, share_of_word_starts)
    ids = np.where(made.special, made.ids, 5 + made.ids % 8).astype(np.int32)
    return Instances(
        ids=ids,
        segment_ids=made.segment_ids,
        word_starts=made.word_starts,
        special=made.special,
        cu_seqlens=made.cu_seqlens,
        pair_labels=made.pair_labels,
    )


def words_in_a_row(word: Word, number: int) -> tuple[Instances, Selection]:
    """Sequences of ten times the same word, every word a selected unit of its own."""
    size, each = len(word), 10
    count = number // each
    row = [SPECIAL.cls, *(word * each), SPECIAL.sep]
    special = np.zeros(len(row), dtype=bool)
    special[[0, -1]] = True
    starts_word = special.copy()
    starts_word[1 : 1 + size * each : size] = True
    instances = Instances(
        ids=np.tile(np.array(row, dtype=np.int32), count),
        segment_ids=np.zeros(len(row) * count, dtype=np.int8),
        word_starts=np.tile(starts_word, count),
        special=np.tile(special, count),
        cu_seqlens=np.arange(count + 1) * len(row),
        pair_labels=np.full(count, -1, dtype=np.int8),
    )
    starts = (np.arange(count)[:, None] * len(row) + 1 + size * np.arange(each)[None, :]).ravel()
    return instances, Selection(starts, starts + size)


def replaced(word: Word, number: int, table: SimilarWords, replacement: SimilarWord | None = None) -> IntArray:
    instances, selection = words_in_a_row(word, number)
    made = replacement or SimilarWord()
    after = made.replace_tokens(instances, selection, draws_for(instances), knowing(VOCABULARY, table))
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


def test_other_shares_are_honoured() -> None:
    table = table_of({(5,): [(20,)]}, [(30,)])
    assert (replaced((5,), 2000, table, SimilarWord(similar=1, random=0, keep=0)) == 20).all()
    assert (replaced((5,), 2000, table, SimilarWord(similar=0, random=1, keep=0)) == 30).all()
    assert (replaced((5,), 2000, table, SimilarWord(similar=0, random=0, keep=1)) == 5).all()


def test_where_the_corpus_has_no_word_of_a_length_tokens_are_drawn_without_special_ones() -> None:
    after = replaced((5, 6), 100_000, table_of({}, [(30,)]), SimilarWord(similar=0, random=1, keep=0))
    counts = np.bincount(after.ravel(), minlength=SPECIAL.vocab_size)
    never = sorted({SPECIAL.pad, SPECIAL.unk, SPECIAL.cls, SPECIAL.sep, SPECIAL.mask})
    assert not counts[never].any()
    assert len(counts) == SPECIAL.vocab_size
    assert looks_uniform(np.delete(counts, never))


@pytest.mark.parametrize("limit", [0.1, 0.3, 0.0, 1.0])
@pytest.mark.parametrize("word", [(5,), (5, 6), (5, 6, 7, 8)])
def test_random_words_stand_in_for_their_share_of_the_selected_tokens(word: Word, limit: float) -> None:
    replacement = SimilarWord(similar=1, random=0, keep=0, max_stand_ins=limit)
    stranger = tuple(id + 30 for id in word)
    after = replaced(word, 20_000, table_of({}, [stranger]), replacement)
    stood_in = (after == stranger).all(axis=1)
    assert (after[~stood_in] == word).all()
    assert within(float(stood_in.mean()), limit, len(stood_in)) if 0 < limit < 1 else stood_in.mean() == limit
    assert looks_uniform(stood_in.reshape(-1, 10).sum(axis=0)) if limit else not stood_in.any()


def test_every_word_without_a_similar_one_gets_a_random_one_while_they_are_few() -> None:
    # One word of ten has none, and a tenth may be stood in for: it always is.
    instances, selection = words_in_a_row((5, 6), 5000)
    ids = instances.ids.copy()
    odd = selection.starts[::10]
    ids[odd] = 40
    instances = dataclasses.replace(instances, ids=ids)
    facts = knowing(VOCABULARY, table_of({(5, 6): [(20, 21)]}, [(30, 31)]))
    replacement = SimilarWord(similar=1, random=0, keep=0)
    after = replacement.replace_tokens(instances, selection, draws_for(instances), facts)
    assert (after[odd] == 30).all()
    assert (after[np.setdiff1d(selection.starts, odd)] == 20).all()


def plainly(
    instances: Instances, selection: Selection, draws: Draws, similar: dict[Word, list[Word]], random: list[Word]
) -> tuple[IntArray, dict[str, int]]:
    """The same, word by word: an independent oracle of the defaults."""
    corrupted, told = instances.ids.copy(), {"similar": 0, "random": 0, "stood in": 0, "kept": 0, "spared": 0}
    runs: list[tuple[int, int]] = []
    for start, end in zip(selection.starts.tolist(), selection.ends.tolist(), strict=True):
        cuts = [start, *(at for at in range(start + 1, end) if instances.word_starts[at]), end]
        runs += pairwise(cuts)

    def number(purpose: str, at: int) -> float:
        sequence = int(np.searchsorted(instances.cu_seqlens, at, side="right") - 1)
        offset = at - instances.cu_seqlens[sequence]
        return float(draws.uniform_at(purpose, np.array([sequence]), np.array([offset]))[0])

    def put(low: int, high: int, options: list[Word]) -> None:
        if options:
            corrupted[low:high] = options[int(number("replacement word", low) * len(options))]
            return
        ordinary = [id for id in range(SPECIAL.vocab_size) if id not in (0, 1, 2, 3, 4)]
        for at in range(low, high):
            corrupted[at] = ordinary[int(number("replacement token", at) * len(ordinary))]

    for low_bound, high_bound in zip(instances.cu_seqlens[:-1], instances.cu_seqlens[1:], strict=True):
        own = [(low, high) for low, high in runs if low_bound <= low < high_bound]
        wanting = []
        for low, high in own:
            word, of_length = tuple(instances.ids[low:high].tolist()), [w for w in random if len(w) == high - low]
            decision = number("replacement decision", low)
            if decision >= 0.9:
                told["kept"] += high - low
            elif decision >= 0.8:
                put(low, high, of_length)
                told["random"] += high - low
            elif word in similar:
                put(low, high, similar[word])
                told["similar"] += high - low
            else:
                wanting.append((low, high, of_length))
        selected, missing = (sum(run[1] - run[0] for run in runs_) for runs_ in (own, wanting))
        for low, high, of_length in wanting:
            if number("replacement stand-in", low) < 0.1 * selected / missing:
                put(low, high, of_length)
                told["stood in"] += high - low
            else:
                told["spared"] += high - low
    return corrupted, told


@given(
    lengths=st.lists(st.integers(2, 60), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    masking=st.sampled_from(MASKINGS),
)
@settings(max_examples=60, deadline=None)
def test_it_does_what_the_plain_rule_does(lengths: list[int], seed: int, masking: Masking) -> None:
    instances = few_ids(lengths, seed)
    draws = draws_for(instances, seed)
    selection = masking.select(instances, draws)
    similar = {(5,): [(6,), (7,)], (5, 6): [(8, 9)], (7, 8): [(9, 5), (6, 6), (5, 6)], (6, 7, 8): [(8, 8, 8)]}
    random: list[Word] = [(50,), (51,), (52, 53), (54, 55)]
    facts = knowing(VOCABULARY, table_of(similar, random))
    expected, told = plainly(instances, selection, draws, similar, random)
    after = SimilarWord().replace_tokens(instances, selection, draws, facts)
    assert np.array_equal(after, expected)
    outcomes = SimilarWord().outcomes(instances, selection, draws, facts)
    assert list(outcomes.values()) == [told[name] for name in ("similar", "random", "stood in", "kept", "spared")]


@given(
    lengths=st.lists(st.integers(2, 80), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    masking=st.sampled_from(MASKINGS),
)
@settings(max_examples=60, deadline=None)
def test_no_mask_token_appears_and_nothing_else_changes(lengths: list[int], seed: int, masking: Masking) -> None:
    instances, facts = few_ids(lengths, seed), knowing(VOCABULARY, TABLE)
    before = instances.ids.copy()
    draws = draws_for(instances, seed)
    selection = masking.select(instances, draws)
    after = SimilarWord().replace_tokens(instances, selection, draws, facts)
    assert not (after == SPECIAL.mask).any()
    differing = np.flatnonzero(after != before)
    assert set(differing.tolist()) <= set(selection.positions.tolist())
    assert np.array_equal(instances.ids, before)
    assert after.dtype == np.int32
    outcomes = SimilarWord().outcomes(instances, selection, draws, facts)
    assert sum(outcomes.values()) == len(selection.positions)
    assert np.array_equal(SimilarWord().replace_tokens(instances, selection, draws, facts), after)


@pytest.mark.parametrize("masking", MASKINGS)
def test_a_batch_is_replaced_like_its_sequences_one_by_one(masking: Masking) -> None:
    instances, facts = few_ids([40, 17, 88]), knowing(VOCABULARY, TABLE)
    selection = masking.select(instances, draws_for(instances))
    together = SimilarWord().replace_tokens(instances, selection, draws_for(instances), facts)
    for number in range(3):
        single = one_of(instances, number)
        draws = draws_for(single, first_index=number)
        alone = SimilarWord().replace_tokens(single, masking.select(single, draws), draws, facts)
        low, high = instances.cu_seqlens[number : number + 2]
        assert np.array_equal(together[low:high], alone)


def test_without_a_table_it_says_so() -> None:
    instances = few_ids([10])
    selection = TokenMasking().select(instances, draws_for(instances))
    with pytest.raises(ValueError, match="similar_words"):
        SimilarWord().replace_tokens(instances, selection, draws_for(instances), VOCABULARY)


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValidationError, match="add up to 1"):
        SimilarWord(similar=0.9)


# The worked example: 使用 语言 模型 来 预测 , 语言模型 selected as one unit of four characters.
CHARACTERS = {character: 100 + place for place, character in enumerate("使用语言模型来预测法建统计文")}


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
def test_an_n_gram_becomes_a_similar_phrase_and_never_mask_tokens(
    words: list[str], similar: dict[str, list[str]], expected: str
) -> None:
    text = ["使用", *words, "来", "预测"]
    ids = [SPECIAL.cls, *(id for word in text for id in ids_of(word)), SPECIAL.sep]
    starts = [True, *(at == 0 for word in text for at in range(len(word))), True]
    instances = Instances(
        ids=np.array(ids, dtype=np.int32),
        segment_ids=np.zeros(len(ids), dtype=np.int8),
        word_starts=np.array(starts),
        special=np.array([True, *[False] * (len(ids) - 2), True]),
        cu_seqlens=np.array([0, len(ids)]),
        pair_labels=np.array([-1], dtype=np.int8),
    )
    unit = Selection(np.array([3]), np.array([7]))
    table = table_of({ids_of(word): [ids_of(other) for other in others] for word, others in similar.items()})
    facts = VocabularyFacts(special_tokens=SPECIAL, similar_words=table)
    after = SimilarWord(similar=1, random=0, keep=0).replace_tokens(instances, unit, draws_for(instances), facts)
    names = {id: character for character, id in CHARACTERS.items()}
    assert "".join(names[id] for id in after[1:-1].tolist()) == f"使用{expected}来预测"
    # With 80/10/10 the unit takes one of few forms, decided per word, and the rest never moves.
    for index in range(50):
        draws = draws_for(instances, first_index=index)
        seen = SimilarWord().replace_tokens(instances, unit, draws, facts)
        assert SPECIAL.mask not in seen
        assert np.array_equal(np.delete(seen, range(3, 7)), np.delete(instances.ids, range(3, 7)))
