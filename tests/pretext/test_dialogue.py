"""Dialogues: three turns with their roles, and false turns where the label says so."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import SPECIAL, documents_of, lay_out, within

from maskwright.core.errors import RecipeError
from maskwright.core.types import Examples, Instances, Selection
from maskwright.pretext.formats import Dialogue
from maskwright.pretext.objectives import DialogueJudgement

TURNS = [[3, 5, 2], [4] * 7, [2, 2], [6, 1, 4, 3]]


def laid_out(format: Dialogue, turns: list[list[int]], max_length: int = 64, refresh: int = 0) -> list[Instances]:
    documents = documents_of(turns)
    plan = format.plan(documents, max_length, seed=1, refresh=refresh)
    return [lay_out(format, documents, plan.rows(np.array([row]))) for row in range(len(plan))]


def turns_of(instances: Instances) -> list[list[int]]:
    """Token numbers of each turn (tokens of the stream have the ids 100, 101, ...)."""
    ids = instances.ids.tolist()
    assert ids[0] == SPECIAL.cls
    assert ids[-1] == SPECIAL.sep
    turns: list[list[int]] = [[]]
    for token in ids[1:-1]:
        if token == SPECIAL.sep:
            turns.append([])
        else:
            turns[-1].append(token - 100)
    return turns


def test_real_dialogues_are_three_turns_one_after_the_other() -> None:
    rows = [turns_of(row) for row in laid_out(Dialogue(fake_share=0), TURNS)]
    first = [list(range(3)), list(range(3, 8)), list(range(8, 10))]
    second = [list(range(10 + 4 * turn, 14 + 4 * turn)) for turn in range(7)]
    fourth = [list(range(42, 48)), [48], list(range(49, 53)), list(range(53, 56))]
    # What is left over makes a last three with turns before it; two turns are no dialogue.
    assert rows == [first, second[0:3], second[3:6], second[4:7], fourth[0:3], fourth[1:4]]


def test_segments_tell_the_roles_and_each_turn_takes_its_separator() -> None:
    for row in laid_out(Dialogue(), TURNS):
        roles = row.segment_ids.tolist()
        expected = [0]
        for number, turn in enumerate(turns_of(row)):
            expected += [number % 2] * (len(turn) + 1)
        assert roles == expected
        assert row.special.sum() == 4


def test_fake_dialogues_have_a_first_or_last_turn_from_elsewhere() -> None:
    turns = [[2, 3, 2]] * 3000  # a dialogue has 7 tokens
    rows = laid_out(Dialogue(), turns[:400])
    false_turns = []
    for number, row in enumerate(rows):
        owners = [{token // 7 for token in turn} for turn in turns_of(row)]
        if row.pair_labels[0] == 0:
            assert owners == [{number}] * 3
        else:
            false_turns += [place for place, owner in enumerate(owners) if owner != {number}]
    fake = sum(int(row.pair_labels[0]) for row in rows)
    assert within(fake / 400, 0.5, 400)
    assert len(false_turns) == fake  # One false turn each; ten tries to hit another dialogue of 400 do not fail.
    assert set(false_turns) == {0, 2}
    assert within(false_turns.count(0) / fake, 0.5, fake)


def cut_by_hand(lengths: list[int], room: int) -> list[int]:
    """Take a token from the longest turn, of equal ones from the last, until all fit."""
    lengths = list(lengths)
    while sum(lengths) > room:
        longest = max(range(3), key=lambda turn: (lengths[turn], turn))
        lengths[longest] -= 1
    return lengths


TURN = st.one_of(st.integers(1, 3), st.integers(1, 60))


@settings(max_examples=200)
@given(st.lists(st.lists(TURN, min_size=3, max_size=5), min_size=1, max_size=4), st.integers(7, 90), st.integers(0, 9))
def test_no_turn_is_ever_lost(turns: list[list[int]], max_length: int, refresh: int) -> None:
    ends = documents_of(turns).sentence_ends.tolist()
    written = [range(*bounds) for bounds in itertools.pairwise([0, *ends])]
    for row in laid_out(Dialogue(), turns, max_length, refresh):
        assert row.special.sum() == 4
        held = turns_of(row)
        whole = [next(turn for turn in written if part[0] in turn) for part in held]
        assert [len(part) for part in held] == cut_by_hand([len(turn) for turn in whole], max_length - 4)
        for part, turn in zip(held, whole, strict=True):
            assert part == list(range(part[0], part[-1] + 1))
            assert part[-1] in turn
        assert [int(role) for role in row.segment_ids[row.special]] == [0, 0, 1, 0]


def test_how_a_dialogue_is_cut_does_not_tell_whether_it_is_fake() -> None:
    beginnings: dict[int, list[bool]] = {0: [], 1: []}
    for row in laid_out(Dialogue(), [[9, 9, 9]] * 1000, max_length=16):
        middle = turns_of(row)[1]
        beginnings[int(row.pair_labels[0])].append(middle[0] % 27 == 9)
    for kept in beginnings.values():
        assert within(sum(kept) / len(kept), 0.5, len(kept))


def test_lengths_without_room_for_three_turns_are_refused() -> None:
    with pytest.raises(RecipeError, match="at least 7"):
        Dialogue().plan(documents_of(TURNS), 6, seed=0, refresh=0)


def test_the_judge_asks_for_the_label_of_each_dialogue() -> None:
    assert DialogueJudgement.needs <= Dialogue().provides
    documents = documents_of(TURNS)
    plan = Dialogue().plan(documents, 64, seed=1, refresh=0)
    instances = lay_out(Dialogue(), documents, plan)
    nothing = np.zeros(0, dtype=np.int64)
    targets = DialogueJudgement().targets(
        Examples(instances=instances, selection=Selection(nothing, nothing), corrupted=instances.ids)
    )
    assert targets.labels.tolist() == plan.pair_labels.tolist()
    assert DialogueJudgement.needs_pooler
