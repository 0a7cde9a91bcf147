"""Batches of packed sequences (without padding); all sequences of a unit are in the same batch.

The units of each step, and their order, are a pure function of (seed, epoch).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.core.randomness import Permutation, integer_key
from maskwright.core.row_counts import rounded_up
from maskwright.core.tensors import FlatBatch
from maskwright.core.types import IntArray
from maskwright.finetuning.features import FeatureBatch, Features, Ranges
from maskwright.training.packing import pack


@dataclass(frozen=True, slots=True)
class StepBatches:
    """The data of one optimizer step.

    Attributes:
        micro_batches: One forward and backward pass each.
        count: Divisor of the summed loss: labelled positions for tagging, else units (the sum of the counts of
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
        row_length = int(lengths.max())
        packing = pack(lengths, row_length)
        starts, row_slots = packing.in_stream(lengths, row_length)
        places = Ranges(starts, starts + lengths).tokens
        taken = Ranges(features.cu_seqlens[sequences], features.cu_seqlens[sequences + 1])
        tokens = taken.tokens
        # Scoring batches are used once; rounding up their size does not pay.
        size = len(places) if dropout_key is None else rounded_up(len(places))

        def spread(values: IntArray, filler: int) -> torch.Tensor:
            laid = np.full(size, filler, dtype=np.int64)
            laid[places] = values
            return torch.from_numpy(laid).to(device)

        positions, labelled = None, units
        if self._positions is not None:
            assert features.positions is not None
            of_sequence = self._positions.pick(sequences)
            labelled = of_sequence.tokens
            moved = np.repeat(starts - taken.starts, of_sequence.lengths)
            positions = torch.from_numpy(features.positions[labelled].astype(np.int64) + moved).to(device)
        batch = FlatBatch(
            ids=spread(features.ids[tokens], self._pad),
            position_ids=spread(places - np.repeat(starts, lengths), 0),
            segment_ids=spread(features.segment_ids[tokens], 0),
            sequence_ids=spread(np.repeat(np.arange(len(lengths)), lengths), -1),
            first_tokens=torch.from_numpy(starts).to(device),
            row_length=row_length,
            num_tokens=len(places),
            row_slots=torch.from_numpy(row_slots).to(device),
            num_rows=packing.num_rows,
            dropout_key=dropout_key,
        )
        return FeatureBatch(
            batch=batch,
            lengths=torch.from_numpy(lengths.astype(np.int64)).to(device),
            unit_numbers=np.asarray(units, dtype=np.int64),
            units=torch.from_numpy(np.repeat(np.arange(len(units)), chosen.lengths)).to(device),
            positions=positions,
            labels=None if features.labels is None else torch.from_numpy(features.labels[labelled]).to(device),
        )

    def step(self, units: IntArray, *, seed: int, step: int) -> StepBatches:
        """Make the micro-batches of one optimizer step, with dropout keyed by (seed, step, micro-batch).

        Args:
            units: Shape (U',), indices of units.
            seed: The run's seed.
            step: The step's number over all epochs.
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
