"""N-gram masking: runs of whole words are masked together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers, as_uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import WordMasking
from maskwright.pretext.masking.sampling import FloatArray, RandomOrder, count_reached, ranks, words
from maskwright.pretext.shares import Share, check_shares

_MIN_AT_ONCE = 4
_NONE = np.iinfo(np.int64).max


class NgramMasking(WordMasking):
    """Windows of one or more adjacent words, until the budget is met (Lan et al. 2019, section 4.1).

    DEVIATION: a window ends where a text ends. In ALBERT's code it can cross a separator, since special tokens are
    removed from the list of words first (create_pretraining_data.py:393-600); objectives that use the tokens next to a
    unit need true boundaries.

    Attributes:
        length_shares: Shares of windows of 1, 2, ... words; they sum to 1. ALBERT: proportional to 1/n up to 3 words;
            MacBERT: 0.4, 0.3, 0.2 and 0.1. At the end of a text or of the budget windows are shorter.
        budget: Unit of the rate and the budget: "tokens" (ALBERT) or "words" (MacBERT), as in `WholeWordMasking`.
        order: Placement of windows. "random" (ALBERT): words are visited in random order, and from each a window is
            selected, shortened if it overruns the budget, unless it touches a selected one. "left_to_right"
            (ymcui/MacBERT issue 13): lengths are sampled until they use up the budget; as many random words
            are pointers; from left to right each selects its window and moves the later pointers by the window's words
            beyond one. The budget is always met; it must be of words. If a text ends within a window, the rest is a
            unit at the start of the next text.
    """

    kind: Literal["ngram"] = "ngram"
    length_shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (6 / 11, 3 / 11, 2 / 11)
    order: Literal["random", "left_to_right"] = "random"

    @model_validator(mode="after")
    def _fits(self) -> "NgramMasking":
        check_shares({f"length_shares.{place}": share for place, share in enumerate(self.length_shares)})
        if self.order == "left_to_right" and self.budget == "tokens":
            raise ValueError(
                "order 'left_to_right' samples lengths before it knows the words, so it cannot "
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

    def choose(
        self,
        instances: Instances,
        maskable: BoolArray,
        budgets: IntArray,
        rng: RandomNumbers,
        token_counts: IntArray | None,
    ) -> Selection:
        """Place windows at random (see `Masking.choose`)."""
        text = _Words.of(instances, maskable)
        if not len(text.starts):
            return Selection(text.starts, text.ends)
        place = self._in_random_order if self.order == "random" else self._from_left_to_right
        lengths = place(text, instances, budgets, rng)
        firsts = np.flatnonzero(lengths > 0)
        return Selection(text.starts[firsts], text.ends[firsts + lengths[firsts] - 1])

    def _in_random_order(self, text: "_Words", instances: Instances, budgets: IntArray, rng: RandomNumbers) -> IntArray:
        """Return how many words the window from each word on has, 0 for none. Shape (W,)."""
        starts = text.starts
        order = RandomOrder.of(text.begins, instances, rng)
        numbers = np.cumsum(text.begins) - 1
        random_bits = rng.bits_everywhere("masking length", instances.cu_seqlens)
        lasts = np.flatnonzero(text.is_last)
        costs = text.ends - starts if self.budget == "tokens" else np.ones_like(starts)
        visits = Visits(
            words=lambda visits: numbers[order.tokens(visits)],
            begins=order.slots,
            ends=order.slots + order.counts,
            reach=1 + np.repeat(lasts, np.diff(lasts, prepend=-1)) - np.arange(len(starts)),
            size_before=np.concatenate([[0], np.cumsum(costs)]),
            lengths=lambda words: self.lengths(as_uniform(random_bits[starts[words]])),
        )
        return take_windows(visits, budgets)

    def _from_left_to_right(
        self, text: "_Words", instances: Instances, budgets: IntArray, rng: RandomNumbers
    ) -> IntArray:
        """Return how many words the unit from each word on has, 0 for none. Shape (W,)."""
        num_words = np.add.reduceat(text.begins, instances.cu_seqlens[:-1], dtype=np.int64)
        wanted = np.minimum(budgets, num_words)
        # As many lengths as could be needed; those that start within the budget are kept, the last one shortened.
        owners = np.repeat(np.arange(len(instances)), wanted)
        lengths = self.lengths(rng.uniform_at("masking length", owners, ranks(owners)))
        running = np.concatenate([[0], np.cumsum(lengths)])
        before = running[:-1] - np.repeat(running[np.cumsum(wanted) - wanted], wanted)
        lengths = np.minimum(lengths, wanted[owners] - before)
        kept = np.flatnonzero(lengths > 0)
        owners, before, lengths = (values[kept] for values in (owners, before, lengths))
        # m windows with k words among N - k others: m of N - k + m positions, moved by the words of earlier windows.
        num_windows = np.bincount(owners, minlength=len(instances))
        numbers = np.cumsum(text.begins) - 1
        end_of_places = np.cumsum(num_words) - wanted + num_windows
        places = text.begins & (numbers < np.repeat(end_of_places, instances.lengths))
        pointers = RandomOrder.of(places, instances, rng).first(num_windows)
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
        is_last: Shape (W,), True where a text and so a window ends. A special token is a text.
    """

    begins: BoolArray
    starts: IntArray
    ends: IntArray
    is_last: BoolArray

    @classmethod
    def of(cls, instances: Instances, maskable: BoolArray) -> "_Words":
        starts, ends = words(instances, maskable)
        is_boundary = np.append(instances.special | ~maskable, True)
        is_boundary[instances.cu_seqlens[:-1]] = True
        return cls(instances.word_starts & maskable, starts, ends, is_boundary[ends] | instances.special[starts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """The words of a batch as starts of windows, in visiting order.

    Attributes:
        words: (visits (K,)) -> the word of each visit (K,).
        begins: Shape (B,), each sequence's first visit.
        ends: Shape (B,), one past its last.
        reach: Shape (W,), maximum words of a window from each word.
        size_before: Shape (W+1,), cumulative cost of the words, from 0.
        lengths: (words (K,)) -> sampled length of the window from each (K,), at least 1.
    """

    words: Callable[[IntArray], IntArray]
    begins: IntArray
    ends: IntArray
    reach: IntArray
    size_before: IntArray
    lengths: Callable[[IntArray], IntArray]


def take_windows(visits: Visits, budgets: IntArray) -> IntArray:
    """Select, in visiting order, every window of each sequence that fits its budget (B,) and touches no selected word.

    A window that would overrun the budget is shortened word by word until it fits, or skipped if even one word is too
    long; then a window that touches a selected word is skipped (albert: create_pretraining_data.py:393-600).

    This equals that loop. In each round every sequence considers its next windows, shortened to the budget left at the
    start of the round, and finds which of the overlapping ones come first. The result is final up to the first window
    that does not fit the budget left when its turn comes; the next round starts with it. Few rounds are needed.

    Returns:
        Shape (W,), words of the selected window from each word; 0 without one.
    """
    num_words = len(visits.reach)
    taken = np.zeros(num_words, dtype=np.int64)
    covered = np.zeros(num_words, dtype=bool)
    first_claims = np.full(num_words, _NONE)
    left = budgets.astype(np.int64, copy=True)
    cursor, ends = visits.begins.copy(), visits.ends
    while (active := np.flatnonzero((left > 0) & (cursor < ends))).size:
        # A window uses at least one unit of the budget, most use more, and some overlap.
        counts = np.minimum(ends[active] - cursor[active], left[active] // 2 + _MIN_AT_ONCE)
        begins = np.cumsum(counts) - counts
        places = concatenated_ranges(cursor[active], counts)
        owners = np.repeat(active, counts)
        words = visits.words(places)
        lengths, sizes = _shortened(visits, words, left[owners])
        winners = _first_come(words, lengths, covered, first_claims)
        won = sizes * winners
        running = np.cumsum(won) - won
        running -= np.repeat(running[begins], counts)
        overrun = np.where(running + sizes > left[owners], places, _NONE)
        cut = np.minimum(np.minimum.reduceat(overrun, begins), cursor[active] + counts)
        final = places < np.repeat(cut, counts)
        kept, undone = np.flatnonzero(winners & final), np.flatnonzero(winners & ~final)
        taken[words[kept]] = lengths[kept]
        covered[concatenated_ranges(words[undone], lengths[undone])] = False
        left[active] -= np.add.reduceat(won * final, begins)
        cursor[active] = cut
    return taken


def _shortened(visits: Visits, words: IntArray, left: IntArray) -> tuple[IntArray, IntArray]:
    """Shorten windows to text and budget: words of each (K,), their cost (K,), 0 if nothing fits."""
    lengths = np.minimum(visits.lengths(words), visits.reach[words])
    before = visits.size_before[words]
    sizes = visits.size_before[words + lengths] - before
    while (over := np.flatnonzero(sizes > left)).size:
        lengths[over] -= 1
        sizes[over] = visits.size_before[words[over] + lengths[over]] - before[over]
    return lengths, sizes


def _first_come(words: IntArray, lengths: IntArray, covered: BoolArray, first_claims: IntArray) -> BoolArray:
    """Return which windows touch neither a covered word nor an earlier selected window. Shape (K,).

    In each round the windows that are first at all their words are selected, and those that they touch are excluded. A
    window overlaps few others, so a handful of rounds is enough (Blelloch, Fineman and Shun 2012).

    Args:
        words: Shape (K,), first word of each window, in visiting order.
        lengths: Shape (K,), words of each, 0 for none.
        covered: Shape (W,), selected words; those of the windows selected here are added.
        first_claims: Shape (W,), scratch space, all `_NONE`; restored.
    """
    winners = np.zeros(len(words), dtype=bool)
    beaten = np.zeros(len(words), dtype=bool)
    out = np.zeros(len(words), dtype=bool)
    owned = np.repeat(np.arange(len(words)), lengths)
    where = concatenated_ranges(words, lengths)
    out[owned[covered[where]]] = True
    while (still := np.flatnonzero(~out[owned])).size:
        owned, where = owned[still], where[still]
        np.minimum.at(first_claims, where, owned)
        beaten[owned] = False
        beaten[owned[np.flatnonzero(first_claims[where] != owned)]] = True
        first_claims[where] = _NONE
        ahead = np.flatnonzero(~beaten[owned])
        winners[owned[ahead]] = True
        covered[where[ahead]] = True
        # The winners, which are done, and those that they touch.
        out[owned[np.flatnonzero(covered[where])]] = True
    return winners
