"""N-gram masking: runs of whole words, hidden together."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.units import random_order, ranks, words
from maskwright.pretext.masking.windows import Visits, cells, take_windows
from maskwright.pretext.masking.words import WordMasking
from maskwright.pretext.shares import Share, check_shares


class NgramMasking(WordMasking):
    """Windows of one or more neighbouring words, until the budget is met (Lan et al. 2019, section 4.1).

    DEVIATION: a window ends where a text ends. In ALBERT's code it can reach across a separator, since special tokens
    leave the list of words before windows are made (create_pretraining_data.py:393-600); objectives that read what
    stands beside a unit need honest boundaries.

    Attributes:
        length_shares: Shares of windows that are to have 1, 2, ... words; they add up to 1. ALBERT: in proportion to
            1/n up to 3 words; MacBERT: 0.4, 0.3, 0.2 and 0.1. At the end of a text or of the budget windows come out
            shorter.
        budget: What the rate counts and the budget limits: "tokens" (ALBERT) or "words" (MacBERT), as in
            `WholeWordMasking`. `max_targets` limits tokens and does not go with "words".
        order: How windows find their places. "random" (ALBERT): words are visited in random order, and from each a
            window is taken, shortened if it overruns the budget, unless it touches one that was taken before.
            "left_to_right" (MacBERT, issue 13): lengths are drawn until they use the budget up; as many words, chosen
            at random, are pointers; from left to right each takes its window and moves the later pointers on by the
            words that the window has beyond one. The budget is always met. It goes with a budget of words; where a
            text ends within a window, the rest of the window is a unit at the beginning of the next text.
    """

    kind: Literal["ngram"] = "ngram"
    length_shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (6 / 11, 3 / 11, 2 / 11)
    order: Literal["random", "left_to_right"] = "random"

    @model_validator(mode="after")
    def _fits(self) -> "NgramMasking":
        check_shares({f"length_shares.{place}": share for place, share in enumerate(self.length_shares)})
        if self.order == "left_to_right" and self.budget == "tokens":
            raise ValueError(
                "order 'left_to_right' draws all lengths before it knows the words that they fall on, so it cannot "
                "keep to a budget of tokens; set budget to 'words' or order to 'random'"
            )
        return self

    def lengths(self, uniform: IntArray) -> IntArray:
        """Turn uniform numbers in [0, 1) into window lengths in words, by their shares. Shape (K,), int64."""
        lengths: IntArray = 1 + np.searchsorted(np.cumsum(self.length_shares[:-1]), uniform, side="right")
        return lengths

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Place windows at random (see `Masking.choose`)."""
        text = _Words.of(instances, maskable)
        if not len(text.starts):
            return Selection(text.starts, text.ends)
        place = self._in_random_order if self.order == "random" else self._from_left_to_right
        lengths = place(text, instances, budgets, draws)
        firsts = np.flatnonzero(lengths)
        return Selection(text.starts[firsts], text.ends[firsts + lengths[firsts] - 1])

    def _in_random_order(self, text: "_Words", instances: Instances, budgets: IntArray, draws: Draws) -> IntArray:
        """Return how many words the window from each word on has, 0 for none. Shape (W,)."""
        starts, sequences = text.starts, text.sequences
        offsets = starts - instances.cu_seqlens[sequences]
        numbers = np.zeros(len(instances.ids), dtype=np.int64)
        numbers[starts] = np.arange(len(starts))
        lasts = np.flatnonzero(text.is_last)
        costs = text.ends - starts if self.budget == "tokens" else np.ones_like(starts)
        visits = Visits(
            words=numbers[random_order(starts, instances, draws, "masking order")],
            begins=np.searchsorted(sequences, np.arange(len(instances) + 1)),
            reach=1 + np.repeat(lasts, np.diff(lasts, prepend=-1)) - np.arange(len(starts)),
            size_before=np.concatenate([[0], np.cumsum(costs)]),
            lengths=lambda some: self.lengths(draws.uniform_at("masking length", sequences[some], offsets[some])),
        )
        return take_windows(visits, budgets)

    def _from_left_to_right(self, text: "_Words", instances: Instances, budgets: IntArray, draws: Draws) -> IntArray:
        """Return how many words the unit from each word on has, 0 for none. Shape (W,)."""
        num_words = np.bincount(text.sequences, minlength=len(instances))
        wanted = np.minimum(budgets, num_words)
        # As many lengths as could be needed; those that begin within the budget are kept, the last one shortened.
        owners = np.repeat(np.arange(len(instances)), wanted)
        lengths = self.lengths(draws.uniform_at("masking length", owners, ranks(owners)))
        before = np.cumsum(lengths) - lengths
        before -= np.repeat(before[np.flatnonzero(ranks(owners) == 0)], wanted[wanted > 0])
        lengths = np.minimum(lengths, wanted[owners] - before)
        owners, before, lengths = (values[lengths > 0] for values in (owners, before, lengths))
        # m windows of k words stand among N - k others: m of N - k + m places, moved on by what stands before them.
        num_windows = np.bincount(owners, minlength=len(instances))
        is_place = ranks(text.sequences) < (num_words - wanted + num_windows)[text.sequences]
        places, sequences = text.starts[is_place], text.sequences[is_place]
        order = random_order(places, instances, draws, "masking order")
        pointers = np.sort(order[ranks(sequences) < num_windows[sequences]])
        firsts = np.searchsorted(text.starts, pointers) + before - ranks(owners)
        # A unit begins where a window does, and where a text does within one.
        begins = np.zeros(len(text.starts), dtype=bool)
        begins[1:] = text.is_last[:-1]
        begins[firsts] = True
        chosen = cells(firsts, lengths)
        heads = np.flatnonzero(begins[chosen])
        units = np.zeros(len(text.starts), dtype=np.int64)
        units[chosen[heads]] = np.diff(np.append(heads, len(chosen)))
        return units


@dataclass(frozen=True, slots=True)
class _Words:
    """The words that may be selected, W of them.

    Attributes:
        starts: Shape (W,), token offset of each.
        ends: Shape (W,), one past each word's last token.
        sequences: Shape (W,), the sequence of each.
        is_last: Shape (W,), True where a text ends: no window goes on. A special token is a text of its own.
    """

    starts: IntArray
    ends: IntArray
    sequences: IntArray
    is_last: BoolArray

    @classmethod
    def of(cls, instances: Instances, maskable: BoolArray) -> "_Words":
        starts, ends = words(instances, maskable)
        sequences = instances.sequence_ids[starts]
        special = instances.special[starts]
        is_last = np.ones(len(starts), dtype=bool)
        is_last[:-1] = (ends[:-1] != starts[1:]) | (sequences[:-1] != sequences[1:]) | special[:-1] | special[1:]
        return cls(starts, ends, sequences, is_last)
