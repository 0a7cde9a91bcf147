"""SpanBERT's masking: spans of whole words whose lengths follow a geometric distribution."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers, uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Masking, RateBase
from maskwright.pretext.masking.sampling import count_reached

_ROUNDS_PER_BATCH = 4
_MAX_NUMBERS = 1 << 20
"""Maximum number of random numbers computed together."""


class SpanMasking(Masking):
    """Random spans of whole words until the budget is met exactly (Joshi et al. 2020, section 3.1).

    Repeatedly (SpanBERT: fairseq/data/masking.py:72-135):

    1. A length in words is sampled: P(k) is proportional to (1 - p)^(k-1) p, truncated at `longest_span` and
       renormalized. With p = .2 and at most 10 the mean is 3.80 words.
    2. An anchor is sampled among all tokens, so that words of many pieces are hit more often. If it is already masked,
       length and anchor are sampled again; else the span begins at the first token of the anchor's word.
    3. Whole words are masked rightwards: as many as the length says, up to the next special token, and no further
       than the budget. Words that are already masked count, but cost nothing.

    Spans that overlap or touch are one unit, which can therefore be longer than `longest_span`.

    Attributes:
        geometric_p: The p above; larger means shorter spans.
        longest_span: Maximum number of words sampled for a span.
        cut_last_word: Whether the last word is cut where the budget ends, as in the original: every sequence then
            meets its budget exactly. False masks no word in part: a span ends before a word that would overrun, and
            others are tried for the rest.
    """

    kind: Literal["span"] = "span"
    rounding: Literal["half_even", "random", "up", "down"] = "up"
    rate_relative_to: RateBase = "ordinary"
    geometric_p: Annotated[float, Field(gt=0, lt=1)] = 0.2
    longest_span: Annotated[int, Field(ge=1, le=100)] = 10
    cut_last_word: bool = True

    @model_validator(mode="after")
    def _excludes_special_tokens(self) -> "SpanMasking":
        if self.candidates == "all":
            raise ValueError("spans never cross special tokens; set candidates to 'ordinary'")
        return self

    @property
    def provides(self) -> frozenset[str]:
        """Units are runs of adjacent tokens."""
        return frozenset({"contiguous_units"})

    @property
    def length_probabilities(self) -> NDArray[np.float64]:
        """Probability of each length in words, 1..longest_span. Shape (longest_span,)."""
        shares = (1 - self.geometric_p) ** np.arange(self.longest_span)
        normalized: NDArray[np.float64] = shares / shares.sum()
        return normalized

    def choose(
        self,
        instances: Instances,
        maskable: BoolArray,
        budgets: IntArray,
        rng: RandomNumbers,
        token_counts: IntArray | None,
    ) -> Selection:
        """Sample spans in all sequences at once, one per round (see `Masking.choose`)."""
        anchor_keys = rng.keys("masking anchor")
        length_keys = rng.keys("masking length")
        bounds = np.cumsum(self.length_probabilities)
        bounds /= bounds[-1]
        starts = np.flatnonzero(instances.word_starts)
        words_until = np.cumsum(instances.word_starts)
        candidates = np.flatnonzero(maskable)
        first_candidates = np.searchsorted(candidates, instances.cu_seqlens)
        spans = _Spans(
            sizes=np.diff(starts, append=len(maskable)),
            is_boundary=~maskable[starts],
            first_words=np.append(0, words_until)[instances.cu_seqlens],
            remaining_budgets=np.minimum(budgets, np.diff(first_candidates)),
        )
        begun, at_once = 0, _ROUNDS_PER_BATCH
        active = spans.unfinished(np.arange(len(instances)), may_cut=True)
        while len(active):
            # Random numbers of several rounds are computed together: each depends only on its key and its round.
            rounds = begun + np.arange(at_once)[:, None]
            low, high = first_candidates[active], first_candidates[active + 1]
            numbers = (uniform(anchor_keys[active], rounds) * (high - low)).astype(np.int64)
            words = words_until[candidates[low + numbers]] - 1
            lengths = 1 + count_reached(bounds, uniform(length_keys[active], rounds))
            for word, wanted in zip(words, lengths, strict=True):
                spans.add(active, word, wanted, longest=self.longest_span, may_cut=self.cut_last_word)
            begun += at_once
            active = spans.unfinished(active, may_cut=self.cut_last_word)
            at_once = max(_ROUNDS_PER_BATCH, min(2 * at_once, _MAX_NUMBERS // max(1, len(active))))
        words_hit = np.flatnonzero(spans.masked > 0)
        return Selection(starts[words_hit], starts[words_hit] + spans.masked[words_hit]).merge_adjacent()


class _Spans:
    """The state of span sampling: for each of W words the number of its first tokens that are masked.

    Until a sequence's budget is used up each of its words is masked wholly or not at all.

    Args:
        sizes: Shape (W,), tokens of each word.
        is_boundary: Shape (W,), True at words that cannot be masked; each sequence begins with one.
        first_words: Shape (B+1,), the first word of each sequence, and W.
        remaining_budgets: Shape (B,), tokens still to mask; changed in place.
    """

    def __init__(
        self, *, sizes: IntArray, is_boundary: BoolArray, first_words: IntArray, remaining_budgets: IntArray
    ) -> None:
        self.masked = np.zeros(len(sizes), dtype=np.int64)
        self._sizes = sizes
        self._is_boundary = is_boundary
        self._first_words = first_words
        self._remaining_budgets = remaining_budgets
        ahead = np.append(np.flatnonzero(is_boundary), len(sizes))
        self._next_boundary = np.repeat(ahead, np.diff(ahead, prepend=-1))[: len(sizes)]

    def unfinished(self, sequences: IntArray, *, may_cut: bool) -> IntArray:
        """Return those sequences that have budget left and a word that fits."""
        sequences = sequences[np.flatnonzero(self._remaining_budgets[sequences])]
        if may_cut or not len(sequences):
            return sequences
        firsts = self._first_words[sequences]
        counts = self._first_words[sequences + 1] - firsts
        words = concatenated_ranges(firsts, counts)
        taken = (self.masked[words] > 0) | self._is_boundary[words]
        free = np.where(taken, np.iinfo(np.int64).max, self._sizes[words])
        smallest = np.minimum.reduceat(free, np.cumsum(counts) - counts)
        return sequences[np.flatnonzero(smallest <= self._remaining_budgets[sequences])]

    def add(self, sequences: IntArray, words: IntArray, lengths: IntArray, *, longest: int, may_cut: bool) -> None:
        """Add one span per sequence, starting at a word; none if that word is masked or the budget used up."""
        wanted = np.flatnonzero((self.masked[words] == 0) & (self._remaining_budgets[sequences] > 0))
        sequences, words, lengths = sequences[wanted], words[wanted], lengths[wanted]
        ends = np.minimum(words + lengths, self._next_boundary[words])
        # Shape (words of a span, spans).
        reached = words + np.arange(min(longest, int((ends - words).max(initial=0))))[:, None]
        inside = reached < ends
        reached *= inside
        fresh = self._sizes[reached]
        fresh *= inside & (self.masked[reached] == 0)
        total = np.cumsum(fresh, axis=0)
        remaining = self._remaining_budgets[sequences]
        taken = np.minimum(np.maximum(remaining - total + fresh, 0), fresh) if may_cut else fresh * (total <= remaining)
        hit = np.flatnonzero(taken > 0)
        self.masked[reached.ravel()[hit]] = taken.ravel()[hit]
        self._remaining_budgets[sequences] -= taken.sum(axis=0)
