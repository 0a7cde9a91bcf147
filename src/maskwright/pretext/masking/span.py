"""SpanBERT's masking: spans of whole words whose lengths follow a geometric distribution."""

import itertools
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from maskwright.core.randomness import RandomNumbers, uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import CONTIGUOUS_UNITS, Masking, RateBase


class SpanMasking(Masking):
    """Random spans of whole words until the budget is met exactly (Joshi et al. 2020, section 3.1).

    Repeatedly (SpanBERT: fairseq/data/masking.py:72-135):

    1. A length in words is sampled: P(k) is proportional to (1 - p)^(k-1) p, truncated at `longest_span` and
       renormalized. With p = .2 and at most 10 the mean is 3.80 words.
    2. An anchor is sampled among all tokens, so that words of many pieces are hit more often. If it is already masked,
       length and anchor are sampled again; else the span begins at the first token of the anchor's word.
    3. Whole words are masked rightwards: as many as the length says, up to the next special token, and no further
       than the budget, where the last word is cut. Words that are already masked count, but cost nothing.

    Spans that overlap or touch are one unit, which can therefore be longer than `longest_span`.

    Attributes:
        geometric_p: The p above; larger means shorter spans.
        longest_span: Maximum number of words sampled for a span.
    """

    kind: Literal["span"] = "span"
    provides: ClassVar[frozenset[str]] = CONTIGUOUS_UNITS
    rounding: Literal["half_even", "random", "up", "down"] = "up"
    rate_relative_to: RateBase = "ordinary"
    geometric_p: Annotated[float, Field(gt=0, lt=1)] = 0.2
    longest_span: Annotated[int, Field(ge=1, le=100)] = 10

    @model_validator(mode="after")
    def _excludes_special_tokens(self) -> "SpanMasking":
        if self.candidates == "all":
            raise ValueError("spans never cross special tokens; set candidates to 'ordinary'")
        return self

    @property
    def length_probabilities(self) -> NDArray[np.float64]:
        """Probability of each length in words, 1..longest_span. Shape (longest_span,)."""
        shares = (1 - self.geometric_p) ** np.arange(self.longest_span)
        normalized: NDArray[np.float64] = shares / shares.sum()
        return normalized

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        anchor_keys, length_keys = rng.keys("masking anchor"), rng.keys("masking length")
        bounds = np.cumsum(self.length_probabilities)
        bounds /= bounds[-1]
        starts = np.flatnonzero(instances.word_starts)
        sizes = np.diff(starts, append=len(maskable))
        # Spans end at words that cannot be masked; each sequence begins with one.
        boundaries = np.append(np.flatnonzero(~maskable[starts]), len(starts))
        next_boundary = np.repeat(boundaries, np.diff(boundaries, prepend=-1))[: len(starts)]
        word_of = np.cumsum(instances.word_starts) - 1
        candidates = np.flatnonzero(maskable)
        first_candidates = np.searchsorted(candidates, instances.cu_seqlens)
        num_candidates = np.diff(first_candidates)
        left = np.minimum(self.budgets(instances, rng), num_candidates)
        masked = np.zeros(len(starts), dtype=np.int64)  # how many of each word's first tokens
        for number in itertools.count():
            active = np.flatnonzero(left)
            if not len(active):
                break
            anchors = (uniform(anchor_keys[active], number) * num_candidates[active]).astype(np.int64)
            words = word_of[candidates[first_candidates[active] + anchors]]
            lengths = 1 + np.searchsorted(bounds, uniform(length_keys[active], number), side="right")
            begun = np.flatnonzero(masked[words] == 0)
            active, words, lengths = active[begun], words[begun], lengths[begun]
            ends = np.minimum(words + lengths, next_boundary[words])
            # Shape (words of a span, spans).
            reached = words + np.arange((ends - words).max(initial=0))[:, None]
            inside = reached < ends
            reached *= inside
            fresh = sizes[reached] * (inside & (masked[reached] == 0))
            before = np.cumsum(fresh, axis=0) - fresh
            taken = np.minimum(np.maximum(left[active] - before, 0), fresh)
            masked[reached[taken > 0]] = taken[taken > 0]
            left[active] -= taken.sum(axis=0)
        hit = np.flatnonzero(masked)
        return Selection(starts[hit], starts[hit] + masked[hit]).merge_adjacent()
