"""Boundaries of units, and their selection until a budget is met. T tokens."""

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.randomness import RandomNumbers
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import RandomOrder


def unit_ends(begins: BoolArray) -> IntArray:
    """Return one past the last token of each token's unit; units begin at `begins`. Shapes (T,)."""
    return np.append(np.flatnonzero(begins), len(begins))[np.cumsum(begins)]


def span_begins(instances: Instances, span_kind: str) -> BoolArray:
    """Return where phrases or entities (`span_kind`) begin. Shape (T,).

    Raises DataError if the text was prepared without them.
    """
    if span_kind not in instances.span_starts:
        raise DataError(
            f"the text has no {span_kind!r} annotations, which the masking needs",
            allowed=", ".join(sorted(instances.span_starts)) or "none",
            hint="Set words.phrases or words.entities and prepare the text again",
        )
    return instances.span_starts[span_kind]


def until_full(
    begins: BoolArray, maskable: BoolArray, instances: Instances, budgets: IntArray, rng: RandomNumbers
) -> Selection:
    """Select the units that begin at `begins` (T,), in random order, while they fit their sequence's token budget.

    A unit that would overrun is skipped, and the others are still tried (create_pretraining_data.py:376-398).
    """
    order, ends = RandomOrder.of(begins & maskable, instances, rng), unit_ends(begins)
    taken = np.zeros(len(begins), dtype=bool)
    left = budgets.copy()
    for active, units in order.rounds(left):
        lengths = ends[units] - units
        fits = lengths <= left[active]
        taken[units] = fits
        left[active] -= lengths * fits
    starts = np.flatnonzero(taken)
    return Selection(starts, ends[starts])
