"""The interface of maskings: selection of the tokens to predict; the random order in which they are sampled.

`Masking.select` finds the tokens that may be selected, `Masking.budgets` the number to select in each sequence.
Subclasses define units (tokens, words, spans) and how they are sampled: until the budget is met or, in
`KnowledgeMasking`, independently.

T tokens, B sequences, V vocabulary size.
"""

import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import RandomNumbers
from maskwright.core.spec import Spec
from maskwright.core.types import BoolArray, Instances, IntArray, Selection

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]
_RANDOM_BITS, _DROPPED_BITS = 28, 36
"""A sort key is (sequence, random bits, offset in the sequence): unique, so that the order of a sequence does not
depend on the rest of the batch or on the sorting algorithm."""
RateBase = Literal["all", "ordinary"]
Share = Annotated[float, Field(ge=0, le=1)]

CONTIGUOUS_UNITS = frozenset({"contiguous_units"})
"""The property of maskings whose units are runs of adjacent tokens."""


class Masking(Spec):
    """Selects the tokens to predict. Subclasses are frozen values and implement `choose`.

    Attributes:
        provides: Properties of units that objectives list in `needs` ("contiguous_units").
        rate: Share of a sequence's tokens to select, in (0, 1).
        rounding: How rate x tokens is rounded to an integer of at least 1: "half_even" (Python's round: BERT,
            ALBERT), "random" (floor(x + U[0,1)): RoBERTa), "up" (SpanBERT), "down".
        rate_relative_to: "all" tokens with specials (BERT, RoBERTa) or "ordinary" tokens only.
        candidates: Tokens that may be selected: "ordinary" tokens, or "all" including specials (RoBERTa).
        max_targets: Maximum number of tokens selected per sequence; None for no limit (BERT's max_predictions_per_seq).
    """

    kind: str
    provides: ClassVar[frozenset[str]] = frozenset()
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    rounding: Literal["half_even", "random", "up", "down"] = "half_even"
    rate_relative_to: RateBase = "all"
    candidates: Literal["ordinary", "all"] = "ordinary"
    max_targets: Annotated[int, Field(ge=1)] | None = None

    @property
    def span_kinds(self) -> frozenset[str]:
        """Span kinds that the text must be annotated with: "phrase", "entity" (see `span_starts`)."""
        return frozenset()

    @property
    def uses_token_counts(self) -> bool:
        """Whether `select` needs the count of each id in the corpus (`token_counts`)."""
        return False

    @property
    def stages(self) -> tuple[tuple[float, "Masking"], ...]:
        """Stages of training: (share of the budget, masking); shares sum to 1. One stage by default."""
        return ((1.0, self),)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Name of each stage if there are several, else empty."""
        return ()

    def select(
        self,
        instances: Instances,
        rng: RandomNumbers,
        token_counts: IntArray | None = None,
        eligible: BoolArray | None = None,
    ) -> Selection:
        """Select the units to predict in each sequence, deterministically given `rng`.

        No special token is selected unless `candidates` is "all". At least one unit is selected in every sequence
        that has one within its budget. No sequence exceeds its budget, except in `KnowledgeMasking`, which has none.

        Args:
            token_counts: Shape (V,), the count of each id in the corpus, for maskings that use it.
            eligible: Shape (T,), tokens to select from, except in sequences without any; None for all.
        """
        maskable = np.ones(len(instances.ids), dtype=bool) if self.candidates == "all" else ~instances.special
        if eligible is not None:
            eligible = eligible & maskable
            has_any = np.logical_or.reduceat(eligible, instances.cu_seqlens[:-1])
            maskable &= eligible | ~np.repeat(has_any, instances.lengths)
        return self.choose(instances, maskable, rng, token_counts)

    def budgets(self, instances: Instances, rng: RandomNumbers) -> IntArray:
        """Return the budget of each sequence, in the unit of `sizes` (tokens). Shape (B,), int64, at least 1."""
        exact = self.rate * self.sizes(instances)
        match self.rounding:
            case "half_even":
                wanted = np.rint(exact)
            case "random":
                wanted = np.floor(exact + rng.per_instance("masking budget"))
            case "up":
                wanted = np.ceil(exact)
            case "down":
                wanted = np.floor(exact)
        counts = np.maximum(1, wanted.astype(np.int64))
        return counts if self.max_targets is None else np.minimum(counts, self.max_targets)

    def sizes(self, instances: Instances) -> IntArray:
        """Return the size of each sequence that the rate refers to, in tokens. Shape (B,)."""
        if self.rate_relative_to == "all":
            return instances.lengths
        return self._count(instances, np.ones(len(instances.ids), dtype=bool))

    def _count(self, instances: Instances, marks: BoolArray) -> IntArray:
        """Count marked tokens in each sequence, leaving out specials unless they are counted. Shape (B,)."""
        if self.rate_relative_to == "ordinary":
            marks = marks & ~instances.special
        return np.add.reduceat(marks, instances.cu_seqlens[:-1], dtype=np.int64)

    @abstractmethod
    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        """Sample units among the maskable tokens until each sequence's budget (see `budgets`) is met.

        Args:
            maskable: Shape (T,), True where a token may be selected.
            rng: Purposes begin with "masking".
            token_counts: Shape (V,), the count of each id in the corpus; None if unknown.
        """


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise ValueError, with names and sum, if shares do not sum to 1 up to rounding."""
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        written = " + ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(f"{written} = {total:g}; make them add up to 1")


@dataclass(frozen=True)
class RandomOrder:
    """Some tokens of each sequence in random order.

    Attributes:
        tokens: Shape (K,), their offsets in the batch, sequence by sequence.
        counts: Shape (B,), number of tokens of each sequence.
    """

    tokens: IntArray
    counts: IntArray

    @classmethod
    def of(
        cls, wanted: BoolArray, instances: Instances, rng: RandomNumbers, weights: FloatArray | None = None
    ) -> "RandomOrder":
        """Order the `wanted` tokens (T,) randomly.

        With positive `weights` of the ids (V,), the first k tokens of a sequence are a weighted sample without
        replacement (Efraimidis and Spirakis 2006).
        """
        cu_seqlens = instances.cu_seqlens
        random = rng.bits_everywhere("masking order", cu_seqlens)
        if weights is not None:
            random = _waiting_times(random, weights[instances.ids])
        tokens = np.flatnonzero(wanted)
        sequences = instances.sequence_ids[tokens]
        offset_bits = int(instances.lengths.max(initial=0)).bit_length()
        keys = (sequences << (_RANDOM_BITS + offset_bits)).astype(np.uint64)
        keys |= random[tokens] >> np.uint64(_DROPPED_BITS) << np.uint64(offset_bits)
        keys |= (tokens - cu_seqlens[sequences]).astype(np.uint64)
        keys.sort()
        offsets = (keys & np.uint64((1 << offset_bits) - 1)).astype(np.int64)
        return cls(cu_seqlens[sequences] + offsets, np.bincount(sequences, minlength=len(instances)))

    @functools.cached_property
    def begins(self) -> IntArray:
        """The index in `tokens` at which each sequence begins. Shape (B,)."""
        return np.cumsum(self.counts) - self.counts

    def rounds(self, left: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield in each round the sequences with budget `left` (B,), which the caller decreases, and their next tokens.

        All sequences are filled at once, one token of each per round.
        """
        active = np.arange(len(left))
        for tried in range(int(self.counts.max(initial=0))):
            active = active[(left[active] > 0) & (tried < self.counts[active])]
            if not len(active):
                return
            yield active, self.tokens[self.begins[active] + tried]

    def first(self, counts: IntArray) -> IntArray:
        """Return the offsets of the first `counts` (B,) tokens of each sequence, or all of them, ascending."""
        return np.sort(self.tokens[concatenated_ranges(self.begins, np.minimum(counts, self.counts))])


def _waiting_times(bits: Keys, weights: FloatArray) -> Keys:
    """Return exponential waiting times, shorter for greater weights, as sort keys; only the upper bits count."""
    # -log(1 - u) / w, in place.
    waiting = (bits >> np.uint64(11)).astype(np.float64)
    waiting *= -1.0 / (1 << 53)
    np.log1p(waiting, out=waiting)
    waiting /= -weights
    times = waiting.astype(np.float32)
    # Positive floats are ordered like their bits, 31 without the sign. Dropping the lowest keeps a precision of 1e-6.
    return times.view(np.uint32).astype(np.uint64) << np.uint64(64 - 31)
