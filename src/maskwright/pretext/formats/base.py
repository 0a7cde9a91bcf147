"""The interface of input formats: documents to a plan of instances, and plan rows to sequences with special tokens."""

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from maskwright.core.errors import RecipeError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import generators
from maskwright.core.spec import Spec
from maskwright.core.types import AnnotatedTokens, BoolArray, Documents, Instances, IntArray, Plan, SpecialTokens

_BLOCK = 1 << 16

GatherTokens = Callable[[IntArray, IntArray], AnnotatedTokens]
"""(starts (K,), ends (K,)) -> those ranges of the token stream, concatenated."""


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

        Raises RecipeError if `max_length` is too small for text.
        """

    def separator_points(self, documents: Documents) -> IntArray:
        """Return ascending token offsets at which `assemble` inserts a separator inside a text. Shape (K,)."""
        return np.zeros(0, dtype=np.int64)

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
        self._columns = {column.name: array("b" if column.name == "pair_labels" else "q") for column in fields(Plan)}

    def add(
        self, first_start: int, first_end: int, second_start: int = 0, second_end: int = 0, label: int = -1
    ) -> None:
        """Append a row: one text, or two texts with their label."""
        row = (first_start, first_end, second_start, second_end, label)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def plan(self) -> Plan:
        """Return the rows as a plan that shares their memory; add no more rows afterwards."""
        return Plan(**{name: np.asarray(column) for name, column in self._columns.items()})


def assemble(
    plan: Plan,
    gather: GatherTokens,
    special_tokens: SpecialTokens,
    *,
    num_separators_between: int = 1,
    separator_points: IntArray | None = None,
    is_pair: BoolArray | None = None,
) -> Instances:
    """Lay out rows as `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` for pairs, all rows at once.

    Segment 0 reaches up to and including the separators after A; B and its separator are segment 1. Every
    token after a special token begins a word.

    DEVIATION: where truncation leaves B beginning with a word's later piece, Google's code
    (create_pretraining_data.py:342-415) glues that piece to A's last word and masks both together. Here no
    word reaches across a separator: such a piece is a word of its own, as it already was at the start of A.

    Args:
        num_separators_between: Separators between A and B: 1 (BERT) or 2 (RoBERTa).
        separator_points: Ascending token offsets; a separator is inserted at each that is strictly inside a text.
        is_pair: Shape (N,), which rows are pairs, also those with an empty B; None for those whose B is not empty.
    """
    texts = _Texts.of(plan, num_separators_between, separator_points, is_pair)
    cu_seqlens = np.concatenate([[0], np.cumsum(texts.widths.sum(axis=1))])
    total = int(cu_seqlens[-1])

    # Texts are cut into pieces at inner separators. For each piece and the end: text tokens before it, and special
    # tokens inserted there. All other positions are the text's, in its order.
    before_text = np.empty((len(plan), 2), dtype=np.int64)
    before_text[:, 0] = 2  # the previous row's last separator and this row's classification token
    before_text[:1, 0] = 1
    before_text[:, 1] = np.where(texts.is_pair, num_separators_between, 0)
    text_offsets = np.concatenate([[0], np.cumsum(texts.ends - texts.starts)])
    next_texts = texts.point_texts + 1
    num_specials = np.insert(np.append(before_text.ravel(), min(1, len(plan))), next_texts, 1)
    text_offsets = np.insert(text_offsets, next_texts, text_offsets[texts.point_texts] + texts.point_offsets)
    special_offsets = np.repeat(text_offsets, num_specials)
    special_offsets += np.arange(len(special_offsets))
    special = np.zeros(total, dtype=bool)
    special[special_offsets] = True

    tokens = gather(texts.starts, texts.ends)
    ids = np.full(total, special_tokens.sep, dtype=np.int32)
    ids[~special] = tokens.ids
    ids[cu_seqlens[:-1]] = special_tokens.cls

    def with_specials(unit_starts: BoolArray) -> BoolArray:
        starts = np.ones(total, dtype=bool)
        starts[~special] = unit_starts
        starts[special_offsets[:-1] + 1] = True
        return starts

    return Instances(
        ids=ids,
        segment_ids=np.repeat(np.tile(np.array([0, 1], dtype=np.int8), len(plan)), texts.widths.ravel()),
        word_starts=with_specials(tokens.word_starts),
        special=special,
        cu_seqlens=cu_seqlens,
        pair_labels=plan.pair_labels,
        span_starts={kind: with_specials(starts) for kind, starts in tokens.span_starts.items()},
    )


def sequence_lengths(plan: Plan, separator_points: IntArray | None = None) -> IntArray:
    """Return the length of each row's sequence from `assemble`, one separator in a pair. Shape (N,), int64."""
    lengths: IntArray = _Texts.of(plan, 1, separator_points).widths.sum(axis=1)
    return lengths


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of N rows, numbered A0 B0 A1 B1 ...; single rows have an empty B.

    Attributes:
        starts, ends: Shape (2N,), token ranges.
        is_pair: Shape (N,).
        point_texts: Shape (P,), the text of each inner separator, ascending.
        point_offsets: Shape (P,), how many of the text's tokens stand before it.
        widths: Shape (N, 2), tokens of each segment, special ones counted.
    """

    starts: IntArray
    ends: IntArray
    is_pair: BoolArray
    point_texts: IntArray
    point_offsets: IntArray
    widths: IntArray

    @classmethod
    def of(
        cls,
        plan: Plan,
        num_separators_between: int,
        separator_points: IntArray | None,
        is_pair: BoolArray | None = None,
    ) -> "_Texts":
        starts = np.stack([plan.first_start, plan.second_start], axis=1).ravel()
        ends = np.stack([plan.first_end, plan.second_end], axis=1).ravel()
        is_pair = plan.second_end > plan.second_start if is_pair is None else is_pair
        point_texts, point_offsets = _points_inside(starts, ends, separator_points)
        widths = (ends - starts + np.bincount(point_texts, minlength=len(starts))).reshape(-1, 2)
        widths[:, 0] += 1 + np.where(is_pair, num_separators_between, 1)
        widths[:, 1] += is_pair
        return cls(starts, ends, is_pair, point_texts, point_offsets, widths)


def _points_inside(starts: IntArray, ends: IntArray, points: IntArray | None) -> tuple[IntArray, IntArray]:
    """Find the points strictly inside each range: (which range (P,), offset from its start (P,))."""
    if points is None or not len(points):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing
    low = np.searchsorted(points, starts, side="right")
    counts = np.maximum(np.searchsorted(points, ends, side="left") - low, 0)
    texts = np.repeat(np.arange(len(starts)), counts)
    return texts, points[concatenated_ranges(low, counts)] - starts[texts]
