"""Windows of several words, visited in order: each is taken if it fits the budget and meets no other.

Everything here counts the words of a flat batch, W of them, numbered in the order of the text.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.types import BoolArray, IntArray

_FEWEST_AT_ONCE = 4
_NOBODY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """The words of a batch as the beginnings of windows, in the order in which they are visited.

    Attributes:
        words: (visits (K,)) -> the word visited in each. Shape (K,).
        begins: Shape (B,), the number of each sequence's first visit.
        ends: Shape (B,), one past its last.
        reach: Shape (W,), most words that a window from this word on may have.
        size_before: Shape (W+1,), running sum of what the words cost, from 0.
        lengths: (words (K,)) -> how many words the window from each wants to have, at least 1. Shape (K,).
    """

    words: Callable[[IntArray], IntArray]
    begins: IntArray
    ends: IntArray
    reach: IntArray
    size_before: IntArray
    lengths: Callable[[IntArray], IntArray]


def take_windows(visits: Visits, budgets: IntArray) -> IntArray:
    """Go through each sequence's windows and take every one that fits its budget and touches no taken word.

    A window that would overrun the budget is shortened word by word until it fits, or skipped if even one word is too
    long; then a window that touches a taken word is skipped (albert: create_pretraining_data.py:393-600).

    This equals that plain loop. In each round every sequence looks at its next windows, shortened to what is left at
    the round's beginning, and settles which of those that overlap comes first. All is as in the loop up to the first
    window that does not fit what is left when its turn comes: what stands before it is final, and the next round
    begins with it. Since something was taken in between, few rounds follow.

    Args:
        visits: The windows.
        budgets: Shape (B,), what each sequence gives up at most, in what `size_before` sums.

    Returns:
        Shape (W,), how many words the window taken from each word on has; 0 where none is.
    """
    num_words = len(visits.reach)
    taken = np.zeros(num_words, dtype=np.int64)
    covered = np.zeros(num_words, dtype=bool)
    first_claims = np.full(num_words, _NOBODY)
    left = budgets.astype(np.int64, copy=True)
    cursor, ends = visits.begins.copy(), visits.ends
    while (active := np.flatnonzero((left > 0) & (cursor < ends))).size:
        # A window takes at least one of what is left, most take more, and some are in the way of others.
        counts = np.minimum(ends[active] - cursor[active], left[active] // 2 + _FEWEST_AT_ONCE)
        begins = np.cumsum(counts) - counts
        places = concatenated_ranges(cursor[active], counts)
        owners = np.repeat(active, counts)
        words = visits.words(places)
        lengths, sizes = _shortened(visits, words, left[owners])
        winners = _first_come(words, lengths, covered, first_claims)
        won = sizes * winners
        running = np.cumsum(won) - won
        running -= np.repeat(running[begins], counts)
        overrun = np.where(running + sizes > left[owners], places, _NOBODY)
        cut = np.minimum(np.minimum.reduceat(overrun, begins), cursor[active] + counts)
        final = places < np.repeat(cut, counts)
        kept, undone = np.flatnonzero(winners & final), np.flatnonzero(winners & ~final)
        taken[words[kept]] = lengths[kept]
        covered[concatenated_ranges(words[undone], lengths[undone])] = False
        left[active] -= np.add.reduceat(won * final, begins)
        cursor[active] = cut
    return taken


def _shortened(visits: Visits, words: IntArray, left: IntArray) -> tuple[IntArray, IntArray]:
    """Shorten windows to what text and budget allow: (words in each (K,), what they cost (K,)), 0 if nothing fits."""
    lengths = np.minimum(visits.lengths(words), visits.reach[words])
    before = visits.size_before[words]
    sizes = visits.size_before[words + lengths] - before
    while (over := np.flatnonzero(sizes > left)).size:
        lengths[over] -= 1
        sizes[over] = visits.size_before[words[over] + lengths[over]] - before[over]
    return lengths, sizes


def _first_come(words: IntArray, lengths: IntArray, covered: BoolArray, first_claims: IntArray) -> BoolArray:
    """Say which windows are taken if each is that touches neither a covered word nor one taken before it.

    In each round the windows that come first at all their words are taken, and those that they touch are out. A window
    meets few others, so a handful of rounds settles any number (Blelloch, Fineman and Shun 2012).

    Args:
        words: Shape (K,), first word of each window, in visiting order.
        lengths: Shape (K,), words in each, 0 for none.
        covered: Shape (W,), words that are taken already; those of the windows taken here are added.
        first_claims: Shape (W,), scratch space, all `_NOBODY`; put back.
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
        first_claims[where] = _NOBODY
        ahead = np.flatnonzero(~beaten[owned])
        winners[owned[ahead]] = True
        covered[where[ahead]] = True
        # The winners themselves, who are done, and those that they touch.
        out[owned[np.flatnonzero(covered[where])]] = True
    return winners
