"""Examples as token sequences: `[CLS] A [SEP]`, `[CLS] A [SEP] B [SEP]`, with their targets, and batches of them.

Sequences equal those of transformers' tokenizers: one separator between the texts of a pair (Devlin et al. 2019, figure
2) or two, `<s> A </s></s> B </s>` (Liu et al. 2019), as the tokenizer's own files say.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.errors import DataError
from maskwright.core.randomness import Permutation, integer_key
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Ranges:
    """Half-open ranges of a flat token array.

    Attributes:
        starts: Shape (B,), int64.
        ends: Shape (B,), int64.
    """

    starts: IntArray
    ends: IntArray

    @property
    def lengths(self) -> IntArray:
        """Shape (B,)."""
        return self.ends - self.starts

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Indices of all tokens, range by range. Shape (sum of lengths,)."""
        lengths = self.lengths
        before = np.cumsum(lengths) - lengths
        tokens: NDArray[np.int64] = np.repeat(self.starts - before, lengths) + np.arange(int(lengths.sum()))
        return tokens

    def first(self, lengths: IntArray) -> "Ranges":
        """Return the ranges truncated to `lengths`, shape (B,) or ()."""
        return Ranges(self.starts, np.minimum(self.ends, self.starts + lengths))

    def pick(self, index: IntArray) -> "Ranges":
        """Return the ranges selected by indices or a boolean mask."""
        return Ranges(self.starts[index], self.ends[index])


@dataclass(frozen=True, slots=True)
class Sequences:
    """Laid-out sequences, flat.

    Attributes:
        ids: Shape (T,), int32, special tokens in place.
        segment_ids: Shape (T,), int8: 1 in B and its separator if segments were asked for, else 0.
        cu_seqlens: Shape (B+1,), int64.
        first_starts: Shape (B,), int64, place of A's first token (where it would be, if A is empty).
        second_starts: Shape (B,), int64, the same of B; meaningless for single texts.
    """

    ids: IntArray
    segment_ids: IntArray
    cu_seqlens: IntArray
    first_starts: IntArray
    second_starts: IntArray


def ranges_of(lengths: IntArray) -> Ranges:
    """Return consecutive ranges with these lengths."""
    ends = np.cumsum(lengths, dtype=np.int64)
    return Ranges(ends - lengths, ends)


def separators_between(tokenizer: Tokenizer) -> int:
    """Return the number of separators between the texts of a pair: 1 (BERT) or 2 (RoBERTa)."""
    specials = tokenizer.backend.num_special_tokens_to_add(True)
    if specials:
        return int(specials) - 2
    # A tokenizer without a post-processor: use the layout of its kind's family.
    return 2 if tokenizer.kind == "byte_bpe" else 1


def room(tokenizer: Tokenizer, max_length: int, *, pair: bool, needed: int = 1) -> int:
    """Return how many text tokens fit into a sequence; raise `DataError` if fewer than `needed`.

    `max_length` includes special tokens.
    """
    specials = 2 + (separators_between(tokenizer) if pair else 0)
    if max_length - specials < needed:
        raise DataError(
            f"sequences of {max_length} tokens are too short: {specials} are special tokens",
            allowed=f"a length of at least {specials + needed}",
            todo="Raise max_length.",
        )
    return max_length - specials


def cut_pairs(first: IntArray, second: IntArray, room: int) -> tuple[IntArray, IntArray]:
    """Return the truncated lengths of both texts (B,), (B,): the longer text loses its last token until both fit.

    Of texts of equal length the second loses a token (google-research/bert, run_classifier.py, `_truncate_seq_pair`).
    transformers' "longest_first" differs by one token if both are truncated and `room` is odd: there the longer text
    keeps one more.

    Lengths have shape (B,); `room` is the maximum of both together.
    """
    surplus = np.maximum(first + second - room, 0)
    # First the longer text shrinks to the other's length; then both lose tokens in turn, the second first.
    levelled = np.minimum(np.abs(first - second), surplus)
    turns = surplus - levelled
    first_longer = first > second
    return (
        first - np.where(first_longer, levelled, 0) - turns // 2,
        second - np.where(first_longer, 0, levelled) - (turns + 1) // 2,
    )


def lay_out(
    ids: IntArray, first: Ranges, second: Ranges | None, tokenizer: Tokenizer, *, segments: bool, pairs: BoolArray
) -> Sequences:
    """Lay out sequences with special tokens.

    Unlike `pretext.formats.assemble`, a pair may have an empty B and then keeps its separators, as in transformers, and
    the positions of A and B are returned.

    Args:
        ids: Flat token ids that the ranges refer to.
        first: Text A of each sequence.
        second: Text B of each sequence, an empty range for single texts; None if there are no pairs.
        tokenizer: Gives special tokens and the number of separators.
        segments: Whether B is segment 1.
        pairs: Shape (B,), which sequences are pairs.
    """
    special = tokenizer.special_tokens
    between = separators_between(tokenizer)
    first_lengths = first.lengths
    second_lengths = np.zeros_like(first_lengths) if second is None else second.lengths * pairs
    lengths = 2 + first_lengths + second_lengths + between * pairs
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    first_starts = cu_seqlens[:-1] + 1
    second_starts = first_starts + first_lengths + between
    laid = np.full(int(cu_seqlens[-1]), special.sep, dtype=np.int32)
    laid[cu_seqlens[:-1]] = special.cls
    laid[Ranges(first_starts, first_starts + first_lengths).tokens] = ids[first.tokens]
    segment_ids = np.zeros(len(laid), dtype=np.int8)
    if second is not None:
        taken, places = second.pick(pairs), Ranges(second_starts, second_starts + second_lengths).pick(pairs)
        laid[places.tokens] = ids[taken.tokens]
        if segments:
            segment_ids[Ranges(places.starts, places.ends + 1).tokens] = 1
    return Sequences(laid, segment_ids, cu_seqlens, first_starts, second_starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Sequences of many examples, flat, with targets.

    A *unit* is one training or scoring item: one sequence; for multiple choice the sequences of all options of a
    question, which stay together. A long context gives several units (windows) of one example.

    Attributes:
        ids: Shape (T,), special tokens in place.
        segment_ids: Shape (T,); all 0 where the encoder knows no segments.
        cu_seqlens: Shape (B+1,), where sequences begin and end.
        units: Shape (B,), unit of each sequence: ascending from 0 without gaps.
        examples: Shape (U,), example of each unit, ascending.
        positions: Shape (M,), ascending: tokens at which a tag is predicted; None for other tasks.
        labels: Targets; None without labels. int64 (U,) a class or an option; float32 (U,) a number; float32 (U, C) of
            0 and 1, multi-label; int64 (M,) tags, -1 to ignore; int64 (U, 2) first and last token of the answer within
            the sequence.
        offsets: Shape (T, 2), characters [start, end) of the context that each token covers, -1 for tokens outside of
            it; None for tasks other than question answering.
        num_cut: Number of truncated examples.
    """

    ids: IntArray
    segment_ids: IntArray
    cu_seqlens: IntArray
    units: IntArray
    examples: IntArray
    positions: IntArray | None = None
    labels: NDArray | None = None  # type: ignore[type-arg]
    offsets: NDArray | None = None  # type: ignore[type-arg]
    num_cut: int = 0

    @property
    def num_units(self) -> int:
        """U."""
        return len(self.examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureBatch:
    """Some units of `Features`, laid out for the encoder.

    Attributes:
        batch: The flat tokens. `batch.first_tokens` are in the order of `lengths`.
        lengths: Shape (B,), int64, tokens of each sequence, ordered by unit and option. Sequence b covers the
            tokens `batch.first_tokens[b]` to `batch.first_tokens[b] + lengths[b]`.
        unit_numbers: Shape (U',), NumPy: indices of these units in the features, ascending.
        units: Shape (B,), int64: unit of each sequence, from 0 within this batch.
        positions: Shape (M',), int64, tokens at which a tag is predicted, or None as in `Features`.
        labels: As in `Features`, on the device, or None.
    """

    batch: PackedBatch
    lengths: Tensor
    unit_numbers: IntArray
    units: Tensor
    positions: Tensor | None
    labels: Tensor | None


@dataclass(frozen=True, slots=True)
class StepBatches:
    """The data of one optimizer step.

    Attributes:
        micro_batches: One forward and backward pass each.
        count: Divisor of the summed loss: labeled positions for tagging, else units (the sum of the counts of
            `Task.loss`).
        num_tokens: Tokens without padding.
    """

    micro_batches: tuple[FeatureBatch, ...]
    count: int
    num_tokens: int


class Batcher:
    """Makes batches of features.

    Args:
        features: The features.
        pad: Padding id, to round up the size of training batches.
        tokens: Maximum tokens of a batch without padding; a longer unit is a batch of its own.
        device: Device of the tensors.
    """

    def __init__(self, features: Features, *, pad: int, tokens: int, device: torch.device) -> None:
        self.features = features
        self._pad = pad
        self._tokens = tokens
        self._device = device
        self._lengths = np.diff(features.cu_seqlens)
        numbers = np.arange(features.num_units + 1)
        # Sequences are grouped by unit, positions by sequence: both are ranges.
        bounds = np.searchsorted(features.units, numbers)
        self._sequences = Ranges(bounds[:-1], bounds[1:])
        token_bounds = features.cu_seqlens[bounds]
        self._unit_tokens = np.diff(token_bounds)
        self._longest = _maxima(self._lengths, bounds)
        self._positions: Ranges | None = None
        if features.positions is not None:
            places = np.searchsorted(features.positions, features.cu_seqlens)
            self._positions = Ranges(places[:-1], places[1:])

    def by_length(self, units: IntArray) -> list[NDArray[np.int64]]:
        """Split units (U',) into as few groups as fit, of about equal size, longest sequences first."""
        # Longest first, so that running out of memory shows at once.
        order = units[np.argsort(-self._longest[units], kind="stable")]
        ends = np.cumsum(self._unit_tokens[order])
        total = int(ends[-1]) if len(ends) else 0
        groups, first, done = [], 0, 0
        while first < len(order):
            share = (total - done) / math.ceil((total - done) / self._tokens)
            reaches = int(np.searchsorted(ends, done + share)) + 1
            fits = int(np.searchsorted(ends, done + self._tokens, side="right"))
            last = max(first + 1, min(reaches, fits))
            groups.append(np.sort(order[first:last]))
            first, done = last, int(ends[last - 1])
        return groups

    def batch(self, units: IntArray, *, dropout_key: int | None = None) -> FeatureBatch:
        """Make one batch.

        Args:
            units: Shape (U',), ascending indices of units, at least one.
            dropout_key: Key of the dropout masks; None for scoring, without dropout.
        """
        features, device = self.features, self._device
        chosen = self._sequences.pick(units)
        sequences = chosen.tokens
        lengths = self._lengths[sequences]
        taken = Ranges(features.cu_seqlens[sequences], features.cu_seqlens[sequences + 1])
        tokens = taken.tokens
        cu_seqlens = np.append(0, np.cumsum(lengths))
        starts = cu_seqlens[:-1]

        def tensor(values: IntArray) -> torch.Tensor:
            return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)

        positions, labeled = None, units
        if self._positions is not None:
            assert features.positions is not None
            of_sequence = self._positions.pick(sequences)
            labeled = of_sequence.tokens
            moved = np.repeat(starts - taken.starts, of_sequence.lengths)
            positions = tensor(features.positions[labeled] + moved)
        batch = PackedBatch(
            ids=tensor(features.ids[tokens]),
            position_ids=tensor(np.arange(len(tokens)) - np.repeat(starts, lengths)),
            segment_ids=tensor(features.segment_ids[tokens]),
            cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)).to(device),
            max_seqlen=int(lengths.max()),
            dropout_key=dropout_key,
        )
        return FeatureBatch(
            batch=batch,
            lengths=torch.from_numpy(lengths.astype(np.int64)).to(device),
            unit_numbers=np.asarray(units, dtype=np.int64),
            units=torch.from_numpy(np.repeat(np.arange(len(units)), chosen.lengths)).to(device),
            positions=positions,
            labels=None if features.labels is None else torch.from_numpy(features.labels[labeled]).to(device),
        )

    def step(self, units: IntArray, *, seed: int, step: int) -> StepBatches:
        """Make the micro-batches of one optimizer step, with dropout keyed by (seed, step, micro-batch).

        `units` has shape (U',); `step` counts over all epochs.
        """
        micro_batches = tuple(
            self.batch(group, dropout_key=integer_key(seed, "dropout", step, number))
            for number, group in enumerate(self.by_length(units))
        )
        return StepBatches(
            micro_batches,
            count=self._count(units),
            num_tokens=sum(batch.batch.num_tokens for batch in micro_batches),
        )

    def _count(self, units: IntArray) -> int:
        if self._positions is None:
            return len(units)
        assert self.features.labels is not None
        numbers = self._positions.pick(self._sequences.pick(units).tokens).tokens
        return int(np.count_nonzero(self.features.labels[numbers] >= 0))


def steps_of_epoch(num_units: int, batch_size: int) -> int:
    """Return the steps per epoch; the last batch may be smaller."""
    return math.ceil(num_units / batch_size)


def units_of_step(num_units: int, batch_size: int, *, seed: int, step: int) -> NDArray[np.int64]:
    """Return the units of a step: each epoch is a keyed shuffle, split into batches. `step` counts over all epochs."""
    epoch, place = divmod(step, steps_of_epoch(num_units, batch_size))
    return _order(num_units, seed, epoch)[place * batch_size : (place + 1) * batch_size]


@lru_cache(maxsize=2)
def _order(num_units: int, seed: int, epoch: int) -> NDArray[np.int64]:
    # A whole epoch at once: shuffling 67,000 units takes only 8 times as long as 32.
    order = Permutation(num_units, integer_key(seed, "fine-tuning order", epoch))(np.arange(num_units))
    order.flags.writeable = False
    return order


def scoring_batches(features: Features, *, tokens: int, pad: int, device: torch.device) -> Iterator[FeatureBatch]:
    """Yield all units once, longest sequences first (arguments: see `Batcher`)."""
    batcher = Batcher(features, pad=pad, tokens=tokens, device=device)
    for group in batcher.by_length(np.arange(features.num_units)):
        yield batcher.batch(group)


def _maxima(values: IntArray, bounds: IntArray) -> IntArray:
    """Return the maximum of each non-empty segment between consecutive bounds."""
    return np.maximum.reduceat(values, bounds[:-1]) if len(values) else values
