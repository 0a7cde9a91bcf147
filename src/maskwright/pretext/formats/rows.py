"""What the formats share: iteration over documents, their random numbers, and collection of plan rows."""

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from maskwright.core.randomness import generators
from maskwright.core.types import Documents, Plan

_BLOCK = 1 << 16


def without_empty(documents: Documents) -> Documents:
    """Leave out documents that have no sentence."""
    full = documents.last > documents.first
    return documents if full.all() else documents.pick(full)


def walk(documents: Documents) -> Iterator[tuple[int, int, int]]:
    """Yield (number, first sentence, one past the last sentence) of every document, in order."""
    for begin in range(0, len(documents), _BLOCK):
        # Loops over plain ints are fast, but those of a whole corpus would fill the memory.
        firsts = documents.first[begin : begin + _BLOCK].tolist()
        lasts = documents.last[begin : begin + _BLOCK].tolist()
        yield from zip(range(begin, begin + len(firsts)), firsts, lasts, strict=True)


def keyed_documents(
    documents: Documents, seed: int, mask_sample: int
) -> Iterator[tuple[int, list[int], Callable[..., Any]]]:
    """Yield (number, bounds of the sentences, uniform random numbers of its own) of every document, in order.

    The bounds are where the sentences begin, and where the last one ends.
    """
    ends = np.asarray(documents.sentence_ends)
    keyed = generators(seed, "layout", mask_sample, len(documents))
    for (number, first, last), generator in zip(walk(documents), keyed, strict=True):
        begin = int(ends[first - 1]) if first else 0
        yield number, [begin, *ends[first:last].tolist()], generator.random


def sample_integer(random: Callable[[], float], low: int, high: int) -> int:
    """Return a uniform integer from low..high, both included, from one random number: easy to follow by hand."""
    return low + int(random() * (high - low + 1))


class PlannedInstances:
    """A growing plan, 33 bytes per row."""

    def __init__(self) -> None:
        self._bounds = tuple(array("q") for _ in range(4))
        self._labels = array("b")

    def add(
        self, first_start: int, first_end: int, second_start: int = 0, second_end: int = 0, label: int = -1
    ) -> None:
        """Append a row: one text, or two texts with their label."""
        for column, value in zip(self._bounds, (first_start, first_end, second_start, second_end), strict=True):
            column.append(value)
        self._labels.append(label)

    def plan(self) -> Plan:
        """Return the rows as a plan that shares their memory; add no more rows afterwards."""
        first_start, first_end, second_start, second_end = map(np.asarray, self._bounds)
        return Plan(
            first_start=first_start,
            first_end=first_end,
            second_start=second_start,
            second_end=second_end,
            pair_labels=np.asarray(self._labels),
        )
