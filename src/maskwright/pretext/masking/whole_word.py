"""Whole-word masking: all pieces of a word are masked together."""

from typing import ClassVar, Literal

from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import CONTIGUOUS_UNITS, Masking
from maskwright.pretext.masking.units import until_full


class WholeWordMasking(Masking):
    """Whole words in random order, until the budget is met (create_pretraining_data.py:342-415).

    A word that would overrun the budget of tokens is skipped, never cut, and the others are still tried; a sequence in
    which every word is longer than the budget has no targets, as in Google's code.
    """

    kind: Literal["whole_word"] = "whole_word"
    provides: ClassVar[frozenset[str]] = CONTIGUOUS_UNITS

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        return until_full(instances.word_starts, maskable, instances, self.budgets(instances, rng), rng)
