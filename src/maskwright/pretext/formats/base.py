"""The interface of input formats: documents to a plan of instances, and plan rows to sequences; what formats share."""

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from maskwright.core.errors import RecipeError
from maskwright.core.randomness import generators
from maskwright.core.spec import Spec
from maskwright.core.types import Documents, Instances, IntArray, Plan, SpecialTokens
from maskwright.pretext.formats.assemble import GatherTokens, assemble, sequence_lengths

__all__ = ["Format", "GatherTokens"]

_BLOCK = 1 << 16


class Format(Spec):
    """Turns running text into sequences. Subclasses are frozen values and implement `plan`."""

    kind: str

    @property
    def provides(self) -> frozenset[str]:
        """Labels for objectives' `needs`: "next_sentence_label", "order_label"."""
        return frozenset()

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        """The meaning of the labels 0 and 1 in words; None without labels."""
        return None

    @abstractmethod
    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        """Plan one epoch of documents, in corpus order, whose sentences have at least one token.

        Args:
            max_length: Maximum tokens per sequence, with special tokens.
            seed: Random choices are keyed by (seed, "layout", mask_sample, document), documents without sentences not
                counted.
            mask_sample: Index of the sample of layouts and masks.

        Raises:
            RecipeError: If `max_length` is too small for text.
        """

    def separator_points(self, documents: Documents) -> IntArray:
        """Return ascending token offsets at which `lay_out` inserts a separator inside a text. Shape (K,)."""
        return np.zeros(0, dtype=np.int64)

    def lay_out(
        self, plan: Plan, gather: GatherTokens, special_tokens: SpecialTokens, separator_points: IntArray
    ) -> Instances:
        """Turn plan rows into sequences with special tokens; `gather` reads token ranges of the corpus."""
        return assemble(plan, gather, special_tokens, separator_points=separator_points)

    def lengths(self, plan: Plan, separator_points: IntArray) -> IntArray:
        """Return the number of tokens of each row's sequence, without reading text. Shape (N,), int64."""
        return sequence_lengths(plan, separator_points)

    def _text_length(self, max_length: int, num_specials: int, needed: int) -> int:
        text_length = max_length - num_specials
        if text_length < needed:
            raise RecipeError(
                f"format {self.kind!r} cannot lay out sequences of length {max_length}: "
                f"{num_specials} positions are special tokens",
                allowed=f"a length of at least {num_specials + needed}",
                hint="Raise the max_length of the training phase",
            )
        return text_length


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
