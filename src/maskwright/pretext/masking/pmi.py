"""PMI-masking: collocations, words of high pointwise mutual information, are masked together."""

from typing import ClassVar, Literal

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import CONTIGUOUS_UNITS, Masking
from maskwright.pretext.masking.units import span_begins, until_full


class PMIMasking(Masking):
    """Collocations, and whole words elsewhere, in random order until the budget is met (Levine et al. 2021, 3.2).

    A unit is masked as a whole, so that no part of a collocation reveals the rest. Collocations are found when the text
    is prepared (the span kind "phrase"). A unit that would overrun the budget of tokens is skipped and others are
    tried, as with whole words.
    """

    kind: Literal["pmi"] = "pmi"
    provides: ClassVar[frozenset[str]] = CONTIGUOUS_UNITS

    @property
    def span_kinds(self) -> frozenset[str]:
        return frozenset({"phrase"})

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        return until_full(span_begins(instances, "phrase"), maskable, instances, self.budgets(instances, rng), rng)
