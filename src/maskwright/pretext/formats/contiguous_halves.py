"""ELECTRA's layout: a stretch of running text in two halves, with nothing to tell about them."""

from bisect import bisect_left
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from maskwright.core.randomness import generators
from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import PairFormat
from maskwright.pretext.formats.pairing import draw_integer
from maskwright.pretext.formats.rows import PlanRows, sentence_bounds, walk, without_empty

_SHORTEST = 5  # build_pretraining_dataset.py:85-114


class ContiguousHalves(PairFormat):
    """Two contiguous texts of one document (electra: build_pretraining_dataset.py:34-114).

    Whole sentences are gathered until they reach a target length, which counts text alone, so that a full example is a
    little too long. The first text takes the first sentence, those that stay within half of the target, and by
    a coin the one that reaches beyond; the second text takes the rest. What is beyond the room at the end of either is
    dropped. No label is given: nothing is asked about the pair.

    DEVIATION: in the original a short sentence goes back into the first text if it still fits there after the second
    has begun, which puts sentences out of order. Here both texts are contiguous, as the paper says.

    DEVIATION: in the original the first target length of every file is the longest; here every target is drawn.

    Attributes:
        short_share: Share of examples whose target length is drawn from 5..length; elsewhere it is the length.
        single_share: Share of examples that are one text, "as in classification tasks".
        num_separators_between: Separators between the texts: 1 (ELECTRA) or 2 (RoBERTa).
    """

    kind: Literal["contiguous_halves"] = "contiguous_halves"
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    single_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one pass (see `Format.plan`); documents are numbered without the empty ones."""
        room = self.pair_length(max_length)
        documents = without_empty(documents)
        ends = np.asarray(documents.sentence_ends)
        rows = PlanRows()
        keyed = generators(seed, "layout", refresh, len(documents))
        for (_, first, last), rng in zip(walk(documents), keyed, strict=True):
            bounds = sentence_bounds(ends, first, last)
            sentence = 0
            while sentence < len(bounds) - 1:
                target = max_length
                if rng.random() < self.short_share:
                    target = draw_integer(rng.random, _SHORTEST, max_length)
                stop = min(bisect_left(bounds, bounds[sentence] + target, lo=sentence + 1), len(bounds) - 1)
                split = stop
                if rng.random() >= self.single_share:
                    split = _split(bounds, sentence, stop, (target - (max_length - room)) // 2, rng)
                self._add(rows, bounds[sentence], bounds[split], bounds[stop], room)
                sentence = stop
        return rows.plan()

    def _add(self, rows: PlanRows, start: int, middle: int, end: int, room: int) -> None:
        # A single text has all the places that separators between texts would have taken.
        first_end = min(middle, start + room + self.num_separators_between)
        left = room - (first_end - start)
        if middle < end and left > 0:
            rows.add(start, first_end, middle, min(end, middle + left))
        else:
            rows.add(start, first_end)


def _split(bounds: list[int], sentence: int, stop: int, half: int, rng: np.random.Generator) -> int:
    """Return the first sentence of the second text; `stop` if there is none."""
    # The first text may have fewer tokens than `half`, not as many; its first sentence is its own in any case.
    split = bisect_left(bounds, bounds[sentence] + half, lo=sentence + 1, hi=stop + 1) - 1
    if split <= sentence:
        return sentence + 1
    return split + 1 if split < stop and rng.random() < 0.5 else split
