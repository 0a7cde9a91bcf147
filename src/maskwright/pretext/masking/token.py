"""BERT's masking: single tokens, uniformly."""

from typing import Literal

import numpy as np

from maskwright.core.randomness import Draws
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.masking.units import random_order, ranks


class TokenMasking(Masking):
    """Distinct tokens, uniformly without replacement, as many as the budget says (Devlin et al. 2019, 3.1).

    Every unit is one token. A sequence with fewer candidates than its budget gives up all of them.
    """

    kind: Literal["token"] = "token"

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Take the first tokens of each sequence's random order (see `Masking.choose`)."""
        candidates = np.flatnonzero(maskable)
        order = random_order(candidates, instances, draws, "masking order")
        sequences = instances.sequence_ids[candidates]
        chosen = np.sort(order[ranks(sequences) < budgets[sequences]])
        return Selection(chosen, chosen + 1)
