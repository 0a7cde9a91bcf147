"""ERNIE's layout of dialogues: three turns, their roles told by the segments, some dialogues fake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from maskwright.core.randomness import generators
from maskwright.core.types import Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats.assemble import TakeTokens, assemble
from maskwright.pretext.formats.base import Format
from maskwright.pretext.formats.pairing import RandomTexts
from maskwright.pretext.formats.rows import PlanRows, sentence_bounds, walk, without_empty

_TURNS = 3

_Turn = tuple[int, int]
"""A token range."""


class Dialogue(Format):
    """`[CLS] turn [SEP] turn [SEP] turn [SEP]`, three neighbouring turns of a dialogue (Sun et al. 2019, section 3.3).

    A document is a dialogue and each of its lines a turn, of however many sentences (`sentences_are_lines`).
    Turns go in threes from a dialogue's beginning; what is left over at its end makes a last three together with
    turns before it. Dialogues of fewer than three turns are left out.

    In a fake dialogue (label 1; 0 is real) the first or the last turn, either half of the time, is a turn of another
    dialogue. A corpus of one dialogue takes it from that same one. Dialogues too long for the room lose tokens of their
    longest turns, see `_cut`; three turns are always left.

    DEVIATION: in the paper roles are those of a question Q and responses R, in the orders QRQ, QRR and QQR. A corpus
    here does not say who speaks, so turns take turns: roles are 0, 1, 0. The paper does not say how many dialogues
    are fake, nor that the middle turn is never the false one, which a row of two texts cannot say.

    Attributes:
        fake_share: Share of dialogues that are fake; one half is ours.
    """

    kind: Literal["dialogue"] = "dialogue"
    tells_by_segments: ClassVar[bool] = True
    sentences_are_lines: ClassVar[bool] = True
    fake_share: Annotated[float, Field(ge=0, le=1)] = 0.5

    @property
    def provides(self) -> frozenset[str]:
        """Whether a dialogue is real."""
        return frozenset({"dialogue_label"})

    @property
    def label_meanings(self) -> tuple[str, str]:
        """Whether all turns belong together (see `Format.label_meanings`)."""
        return "a real dialogue", "a fake dialogue: the first or the last turn is of another"

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one pass (see `Format.plan`); documents are numbered without the empty ones."""
        room = self._text_length(max_length, num_specials=1 + _TURNS, needed=_TURNS)
        documents = without_empty(documents)
        ends = np.asarray(documents.sentence_ends)
        texts = RandomTexts(documents)
        rows = PlanRows()
        keyed = generators(seed, "layout", refresh, len(documents))
        for (document, first, last), rng in zip(walk(documents), keyed, strict=True):
            bounds = sentence_bounds(ends, first, last)
            turns = len(bounds) - 1
            for start in range(0, turns if turns >= _TURNS else 0, _TURNS):
                begin = min(start, turns - _TURNS)
                chosen = [(bounds[turn], bounds[turn + 1]) for turn in range(begin, begin + _TURNS)]
                label = int(rng.random() < self.fake_share)
                # Which turn is a text of its own is drawn for real dialogues too: how a row is cut tells no label.
                alone = 0 if rng.random() < 0.5 else _TURNS - 1
                if label:
                    chosen[alone] = texts.draw(rng.random, document, wanted=1)
                opening, rest = _cut(rng.random, chosen, alone, room)
                rows.add(*opening, *rest, label)
        return rows.plan()

    def separator_points(self, documents: Documents) -> IntArray:
        """Each turn has its separator (see `Format.separator_points`)."""
        return documents.sentence_ends

    def lay_out(
        self, plan: Plan, take: TakeTokens, special_tokens: SpecialTokens, separator_points: IntArray
    ) -> Instances:
        """Turn plan rows into sequences; segments are the roles of the turns, 0, 1, 0 (see `Format.lay_out`)."""
        instances = assemble(plan, take, special_tokens, separator_points=separator_points)
        # A turn reaches up to and including its separator, so its number is how many specials stand before it, less
        # the classification token.
        before: IntArray = np.cumsum(instances.special) - instances.special
        of_sequence: IntArray = np.repeat(before[instances.cu_seqlens[:-1]], instances.lengths)
        turn = np.maximum(before - of_sequence - 1, 0)
        return replace(instances, segment_ids=(turn % 2).astype(np.int8))


def _cut(coins: Callable[[int], IntArray], turns: list[_Turn], alone: int, room: int) -> tuple[_Turn, _Turn]:
    """Drop tokens of the longest turns until all fit the room, and join the two that stand side by side.

    A turn alone loses each of its tokens at the front or the back with equal probability; the two others, which are one
    text, can lose theirs at that text's two ends only.

    Args:
        coins: Gives k uniform numbers in [0, 1).
        turns: Token ranges of three turns, none empty; those that are not alone are neighbours.
        alone: Which one is a text of its own, the first (0) or the last (2).
        room: Tokens that they may have together, at least one for each.

    Returns:
        The row's two texts.
    """
    lengths = [end - start for start, end in turns]
    lost = [length - kept for length, kept in zip(lengths, _shortened(lengths, room), strict=True)]
    start, end = turns[alone]
    front = int(np.count_nonzero(coins(lost[alone]) < 0.5))
    single = start + front, end - (lost[alone] - front)
    first, second = (1, 2) if alone == 0 else (0, 1)
    double = turns[first][0] + lost[first], turns[second][1] - lost[second]
    return (single, double) if alone == 0 else (double, single)


def _shortened(lengths: list[int], room: int) -> list[int]:
    """Return how long turns are once the longest (of equal ones the later) have lost token after token to fit."""
    if sum(lengths) <= room:
        return lengths
    level, extra = 0, 0
    for cut, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        # What is left for as many turns as are not shorter; a turn longer than its share is cut, and so are the others.
        level, extra = divmod(room, cut)
        if length > level:
            break
        room -= length
    kept = []
    for length in lengths:
        bears = length > level and extra > 0
        kept.append(level + 1 if bears else min(length, level))
        extra -= bears
    return kept
