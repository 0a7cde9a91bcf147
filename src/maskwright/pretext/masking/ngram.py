"""N-gram masking: runs of whole words, hidden together."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import Draws, as_uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.order import FloatArray, RandomOrder
from maskwright.pretext.masking.units import count_reached, ranks, words
from maskwright.pretext.masking.windows import Visits, take_windows
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
        return 1 + count_reached(self._length_bounds, uniform)

    @property
    def _length_bounds(self) -> FloatArray:
        """Which uniform numbers stand for windows of more than 1, 2, ... words."""
        return np.cumsum(self.length_shares[:-1], dtype=np.float64)

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Place windows at random (see `Masking.choose`)."""
        text = _Words.of(instances, maskable)
        if not len(text.starts):
            return Selection(text.starts, text.ends)
        place = self._in_random_order if self.order == "random" else self._from_left_to_right
        lengths = place(text, instances, budgets, draws)
        firsts = np.flatnonzero(lengths > 0)
        return Selection(text.starts[firsts], text.ends[firsts + lengths[firsts] - 1])

    def _in_random_order(self, text: "_Words", instances: Instances, budgets: IntArray, draws: Draws) -> IntArray:
        """Return how many words the window from each word on has, 0 for none. Shape (W,)."""
        starts = text.starts
        order = RandomOrder.of(text.begins, instances, draws)
        numbers = np.cumsum(text.begins) - 1
        drawn = draws.bits_everywhere("masking length", instances.cu_seqlens)
        lasts = np.flatnonzero(text.is_last)
        costs = text.ends - starts if self.budget == "tokens" else np.ones_like(starts)
        visits = Visits(
            words=lambda visits: numbers[order.tokens(visits)],
            begins=order.slots,
            ends=order.slots + order.counts,
            reach=1 + np.repeat(lasts, np.diff(lasts, prepend=-1)) - np.arange(len(starts)),
            size_before=np.concatenate([[0], np.cumsum(costs)]),
            lengths=lambda words: self.lengths(as_uniform(drawn[starts[words]])),
        )
        return take_windows(visits, budgets)

    def _from_left_to_right(self, text: "_Words", instances: Instances, budgets: IntArray, draws: Draws) -> IntArray:
        """Return how many words the unit from each word on has, 0 for none. Shape (W,)."""
        num_words = np.add.reduceat(text.begins, instances.cu_seqlens[:-1], dtype=np.int64)
        wanted = np.minimum(budgets, num_words)
        # As many lengths as could be needed; those that begin within the budget are kept, the last one shortened.
        owners = np.repeat(np.arange(len(instances)), wanted)
        lengths = self.lengths(draws.uniform_at("masking length", owners, ranks(owners)))
        running = np.concatenate([[0], np.cumsum(lengths)])
        before = running[:-1] - np.repeat(running[np.cumsum(wanted) - wanted], wanted)
        lengths = np.minimum(lengths, wanted[owners] - before)
        kept = np.flatnonzero(lengths > 0)
        owners, before, lengths = (values[kept] for values in (owners, before, lengths))
        # m windows of k words stand among N - k others: m of N - k + m places, moved on by what stands before them.
        num_windows = np.bincount(owners, minlength=len(instances))
        numbers = np.cumsum(text.begins) - 1
        end_of_places = np.cumsum(num_words) - wanted + num_windows
        places = text.begins & (numbers < np.repeat(end_of_places, instances.lengths))
        pointers = RandomOrder.of(places, instances, draws).first(num_windows)
        firsts = numbers[pointers] + before - ranks(owners)
        # A unit begins where a window does, and where a text does within one.
        begins = np.zeros(len(text.starts), dtype=bool)
        begins[1:] = text.is_last[:-1]
        begins[firsts] = True
        chosen = concatenated_ranges(firsts, lengths)
        heads = np.flatnonzero(begins[chosen])
        units = np.zeros(len(text.starts), dtype=np.int64)
        units[chosen[heads]] = np.diff(np.append(heads, len(chosen)))
        return units


@dataclass(frozen=True, slots=True)
class _Words:
    """The words that may be selected, W of them.

    Attributes:
        begins: Shape (T,), True at the first token of each.
        starts: Shape (W,), token offset of each.
        ends: Shape (W,), one past each word's last token.
        is_last: Shape (W,), True where a text ends: no window goes on. A special token is a text of its own.
    """

    begins: BoolArray
    starts: IntArray
    ends: IntArray
    is_last: BoolArray

    @classmethod
    def of(cls, instances: Instances, maskable: BoolArray) -> "_Words":
        starts, ends = words(instances, maskable)
        is_wall = np.append(instances.special | ~maskable, True)
        is_wall[instances.cu_seqlens[:-1]] = True
        return cls(instances.word_starts & maskable, starts, ends, is_wall[ends] | instances.special[starts])
