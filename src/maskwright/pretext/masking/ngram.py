"""N-gram masking: runs of whole words are masked together."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers, as_uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import CONTIGUOUS_UNITS, FloatArray, Masking, RandomOrder, Share, check_shares
from maskwright.pretext.masking.units import unit_ends


class NgramMasking(Masking):
    """Windows of one or more adjacent words, until the budget is met (Lan et al. 2019, section 4.1).

    DEVIATION: a window ends where a text ends. In ALBERT's code it can cross a separator, since special tokens are
    removed from the list of words first (create_pretraining_data.py:393-600); objectives that use the tokens next to a
    unit need true boundaries.

    Attributes:
        length_shares: Shares of windows of 1, 2, ... words; they sum to 1. ALBERT: proportional to 1/n up to 3 words;
            MacBERT: 0.4, 0.3, 0.2 and 0.1. At the end of a text or of the budget windows are shorter.
        budget: Unit of the rate and the budget: "tokens" (ALBERT), or "words" of any length (MacBERT; a special token
            counts as a word). `max_targets` limits tokens and cannot be combined with "words".
        order: Placement of windows. "random" (ALBERT): words are visited in random order, and from each a window is
            selected, shortened if it overruns the budget, unless it touches a selected one. "left_to_right"
            (ymcui/MacBERT issue 13): lengths are sampled until they use up the budget; as many random words
            are pointers; from left to right each selects its window and moves the later pointers by the window's words
            beyond one. The budget is always met; it must be of words. If a text ends within a window, the rest is a
            unit at the start of the next text.
    """

    kind: Literal["ngram"] = "ngram"
    provides: ClassVar[frozenset[str]] = CONTIGUOUS_UNITS
    length_shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (6 / 11, 3 / 11, 2 / 11)
    budget: Literal["tokens", "words"] = "tokens"
    order: Literal["random", "left_to_right"] = "random"

    @model_validator(mode="after")
    def _fits(self) -> "NgramMasking":
        check_shares({f"length_shares.{index}": share for index, share in enumerate(self.length_shares)})
        if self.budget == "words" and self.max_targets is not None:
            raise ValueError(
                f"max_targets {self.max_targets} limits tokens, but budget 'words' counts words; "
                "set max_targets to null or budget to 'tokens'"
            )
        if self.order == "left_to_right" and self.budget == "tokens":
            raise ValueError(
                "order 'left_to_right' samples lengths before it knows the words, so it cannot "
                "keep to a budget of tokens; set budget to 'words' or order to 'random'"
            )
        return self

    def lengths(self, uniform: FloatArray) -> IntArray:
        """Turn uniform numbers in [0, 1) into window lengths in words, by their shares. Shape (K,), int64."""
        return 1 + np.searchsorted(np.cumsum(self.length_shares[:-1]), uniform, side="right")

    def sizes(self, instances: Instances) -> IntArray:
        if self.budget == "words":
            return self._count(instances, instances.word_starts)
        return super().sizes(instances)

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        text = _Words.of(instances, maskable)
        if not len(text.starts):
            return Selection(text.starts, text.ends)
        choose = self._in_random_order if self.order == "random" else self._from_left_to_right
        lengths = choose(text, instances, self.budgets(instances, rng), rng)
        firsts = np.flatnonzero(lengths > 0)
        return Selection(text.starts[firsts], text.ends[firsts + lengths[firsts] - 1])

    def _in_random_order(self, text: "_Words", instances: Instances, budgets: IntArray, rng: RandomNumbers) -> IntArray:
        """Return how many words the window from each word on has, 0 for none. Shape (W,).

        A window that would overrun the budget is shortened word by word until it fits, or skipped if even one word is
        too long; then a window that touches a selected word is skipped (albert: create_pretraining_data.py:393-600).
        """
        order = RandomOrder.of(text.begins, instances, rng)
        word_of = np.cumsum(text.begins) - 1
        sampled = self.lengths(as_uniform(rng.bits_everywhere("masking length", instances.cu_seqlens)[text.starts]))
        lasts = np.flatnonzero(text.is_last)
        reach = 1 + np.repeat(lasts, np.diff(lasts, prepend=-1)) - np.arange(len(text.starts))
        longest = np.minimum(sampled, reach)
        costs = text.ends - text.starts if self.budget == "tokens" else np.ones_like(text.starts)
        cost_before = np.concatenate([[0], np.cumsum(costs)])
        taken = np.zeros(len(text.starts), dtype=np.int64)
        covered = np.zeros(len(text.starts), dtype=bool)
        left = budgets.copy()
        for active, tokens in order.rounds(left):
            words = word_of[tokens]
            # Shape (words of a window, windows).
            reached = words + np.arange(longest[words].max(initial=0))[:, None]
            inside = reached < words + longest[words]
            reached *= inside
            inside &= cost_before[reached + 1] - cost_before[words] <= left[active]
            touches = (inside & covered[reached]).any(axis=0)
            inside &= ~touches
            covered[reached[inside]] = True
            taken[words] = inside.sum(axis=0)
            left[active] -= cost_before[words + taken[words]] - cost_before[words]
        return taken

    def _from_left_to_right(
        self, text: "_Words", instances: Instances, budgets: IntArray, rng: RandomNumbers
    ) -> IntArray:
        """Return how many words the unit from each word on has, 0 for none. Shape (W,)."""
        num_words = np.add.reduceat(text.begins, instances.cu_seqlens[:-1], dtype=np.int64)
        wanted = np.minimum(budgets, num_words)
        # As many lengths as could be needed; those that start within the budget are kept, the last one shortened.
        sequences = np.repeat(np.arange(len(instances)), wanted)
        lengths = self.lengths(rng.uniform_at("masking length", sequences, _ranks(sequences)))
        running = np.concatenate([[0], np.cumsum(lengths)])
        before = running[:-1] - np.repeat(running[np.cumsum(wanted) - wanted], wanted)
        lengths = np.minimum(lengths, wanted[sequences] - before)
        kept = np.flatnonzero(lengths > 0)
        sequences, before, lengths = (values[kept] for values in (sequences, before, lengths))
        # m windows with k words among N - k others: m of N - k + m positions, moved by the words of earlier windows.
        num_windows = np.bincount(sequences, minlength=len(instances))
        numbers = np.cumsum(text.begins) - 1
        end_of_positions = np.cumsum(num_words) - wanted + num_windows
        positions = text.begins & (numbers < np.repeat(end_of_positions, instances.lengths))
        pointers = RandomOrder.of(positions, instances, rng).first(num_windows)
        firsts = numbers[pointers] + before - _ranks(sequences)
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
        begins = instances.word_starts & maskable
        starts = np.flatnonzero(begins)
        ends = unit_ends(instances.word_starts)[starts]
        is_boundary = np.append(instances.special | ~maskable, True)
        is_boundary[instances.cu_seqlens[:-1]] = True
        return cls(begins, starts, ends, is_boundary[ends] | instances.special[starts])


def _ranks(sequences: IntArray) -> IntArray:
    """Number the items of each sequence from 0. `sequences` is ascending, shape (U,)."""
    return np.arange(len(sequences)) - np.searchsorted(sequences, sequences)
