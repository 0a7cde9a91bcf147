"""ERNIE's layout of dialogues: three turns with their roles as segments, some dialogues fake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from maskwright.core.types import Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats.assemble import TakeTokens, assemble
from maskwright.pretext.formats.base import Format
from maskwright.pretext.formats.pairing import random_text
from maskwright.pretext.formats.rows import PlannedInstances, keyed_documents, without_empty

_TURNS = 3

_Turn = tuple[int, int]
"""A token range."""


class Dialogue(Format):
    """`[CLS] turn [SEP] turn [SEP] turn [SEP]`, three adjacent turns of a dialogue (Sun et al. 2019, section 3.3).

    A document is a dialogue and each of its lines a turn of any number of sentences (`sentences_are_lines`). Turns are
    taken in threes from a dialogue's start; the rest at its end forms a last three with the turns before it. Dialogues
    of fewer than three turns are left out.

    In a fake dialogue (label 1; 0 is real) the first or the last turn, each half of the time, is a turn of another
    dialogue (of the same one in a corpus of one dialogue). Dialogues that are too long lose tokens of their longest
    turns (`_cut`); three turns always remain.

    DEVIATION: in the paper roles are those of a question Q and responses R, in the orders QRQ, QRR and QQR. A corpus
    here does not name speakers, so roles alternate: 0, 1, 0. The paper does not say how many dialogues are fake, nor
    that the middle turn is never replaced, which a row of two texts cannot express.

    Attributes:
        fake_share: Share of dialogues that are fake; the paper does not state it.
    """

    kind: Literal["dialogue"] = "dialogue"
    needs_segment_ids: ClassVar[bool] = True
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
        """Plan one epoch (see `Format.plan`); documents are numbered without the empty ones."""
        limit = self._text_length(max_length, num_specials=1 + _TURNS, needed=_TURNS)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for document, bounds, random in keyed_documents(documents, seed, refresh):
            turns = len(bounds) - 1
            for start in range(0, turns if turns >= _TURNS else 0, _TURNS):
                begin = min(start, turns - _TURNS)
                chosen = [(bounds[turn], bounds[turn + 1]) for turn in range(begin, begin + _TURNS)]
                label = int(random() < self.fake_share)
                # The separate turn is sampled for real dialogues too, so that truncation reveals no label.
                alone = 0 if random() < 0.5 else _TURNS - 1
                if label:
                    chosen[alone] = random_text(documents, random, document, wanted=1)
                opening, rest = _cut(random, chosen, alone, limit)
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
        # A turn ends with its separator, so its number is that of special tokens before it, without the first.
        before: IntArray = np.cumsum(instances.special) - instances.special
        of_sequence: IntArray = np.repeat(before[instances.cu_seqlens[:-1]], instances.lengths)
        turn = np.maximum(before - of_sequence - 1, 0)
        return replace(instances, segment_ids=(turn % 2).astype(np.int8))


def _cut(coins: Callable[[int], IntArray], turns: list[_Turn], alone: int, limit: int) -> tuple[_Turn, _Turn]:
    """Drop tokens of the longest turn (of equal ones the last) until `limit` tokens are left; join the adjacent ones.

    The separate turn, the first (0) or the last (2), loses each token at the front or the back with equal probability;
    the two others, which are one text, lose theirs at that text's ends.

    Args:
        coins: Gives k uniform numbers in [0, 1).
        turns: Token ranges of three turns, none empty.
    """
    lengths, lost = [end - start for start, end in turns], [0] * _TURNS
    for _ in range(sum(lengths) - limit):
        longest = max(range(_TURNS), key=lambda turn: (lengths[turn] - lost[turn], turn))
        lost[longest] += 1
    start, end = turns[alone]
    front = int(np.count_nonzero(coins(lost[alone]) < 0.5))
    single = start + front, end - (lost[alone] - front)
    first, second = (1, 2) if alone == 0 else (0, 1)
    double = turns[first][0] + lost[first], turns[second][1] - lost[second]
    return (single, double) if alone == 0 else (double, single)
