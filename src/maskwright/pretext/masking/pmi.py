"""PMI-masking: words that stand together far more often than chance are hidden together."""

from typing import Literal

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.masking.units import level_begins, until_full


class PMIMasking(Masking):
    """Collocations, and whole words elsewhere, in random order until the budget is met (Levine et al. 2021, 3.2).

    A unit is hidden whole or not at all, so that no part of a collocation gives the rest away. Which words are
    collocations is found when text is tokenized (the level "phrase"). A unit that would overrun the budget of tokens
    is skipped and others are tried, as with whole words.
    """

    kind: Literal["pmi"] = "pmi"

    @property
    def provides(self) -> frozenset[str]:
        """Units are runs of neighbouring tokens."""
        return frozenset({"contiguous_units"})

    @property
    def levels(self) -> frozenset[str]:
        """Collocations are phrases of the text."""
        return frozenset({"phrase"})

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Take units in random order while they fit (see `Masking.choose`)."""
        return until_full(level_begins(instances, "phrase"), maskable, instances, budgets, draws)
