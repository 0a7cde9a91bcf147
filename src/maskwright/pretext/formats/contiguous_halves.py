"""ELECTRA's layout: running text in two halves, without a label."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import Format, PlannedInstances, keyed_documents, sample_integer, without_empty

_SHORTEST = 5  # build_pretraining_dataset.py:85-114


class ContiguousHalves(Format):
    """Two contiguous texts of one document (electra: build_pretraining_dataset.py:34-114).

    Whole sentences are collected up to a target length without special tokens, so that a full example is a little too
    long. The first text gets the first sentence, those within half of the target, and half of the time the one that
    exceeds it; the second text gets the rest. What exceeds the limit at the end of either is dropped.

    DEVIATION: in the original a short sentence goes back into the first text if it still fits there after the second
    has begun, which puts sentences out of order. Here both texts are contiguous, as the paper says.

    DEVIATION: in the original the first target length of every file is the longest; here every target is sampled.

    Attributes:
        short_share: Share of examples whose target length is sampled from 5 to the maximum; else it is the maximum.
        single_share: Share of examples that are one text, "as in classification tasks".
    """

    kind: Literal["contiguous_halves"] = "contiguous_halves"
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    single_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        limit = self._text_length(max_length, num_specials=3, needed=2)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for _, bounds, random in keyed_documents(documents, seed, mask_sample):
            sentence = 0
            while sentence < len(bounds) - 1:
                target = max_length
                if random() < self.short_share:
                    target = sample_integer(random, _SHORTEST, max_length)
                stop = min(bisect_left(bounds, bounds[sentence] + target, lo=sentence + 1), len(bounds) - 1)
                split = stop
                if random() >= self.single_share:
                    split = _split(bounds, sentence, stop, (target - (max_length - limit)) // 2, random)
                self._add(rows, bounds[sentence], bounds[split], bounds[stop], limit)
                sentence = stop
        return rows.plan()

    def _add(self, rows: PlannedInstances, start: int, middle: int, end: int, limit: int) -> None:
        # A single text also has the position of the separator between texts.
        first_end = min(middle, start + limit + 1)
        left = limit - (first_end - start)
        if middle < end and left > 0:
            rows.add(start, first_end, middle, min(end, middle + left))
        else:
            rows.add(start, first_end)


def _split(bounds: list[int], sentence: int, stop: int, half: int, random: Callable[[], float]) -> int:
    """Return the first sentence of the second text; `stop` if there is none."""
    # The first text has fewer tokens than `half`, but always its first sentence.
    split = bisect_left(bounds, bounds[sentence] + half, lo=sentence + 1, hi=stop + 1) - 1
    if split <= sentence:
        return sentence + 1
    return split + 1 if split < stop and random() < 0.5 else split
