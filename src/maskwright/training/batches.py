"""From rows of a plan to what a step computes on: laid out, corrupted, packed into rows, cut into micro-batches."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from maskwright.core.randomness import Draws, integer_key
from maskwright.core.tensors import FlatBatch, TargetTensors
from maskwright.core.types import Instances, IntArray, Targets
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.formats.base import Format, TakeTokens
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts
from maskwright.training.packing import Packing, pack
from maskwright.training.stream import Rows


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward and backward pass computes on.

    Attributes:
        batch: The flat tokens.
        targets: For each objective, by kind.
    """

    batch: FlatBatch
    targets: dict[str, TargetTensors]

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the same micro-batch on a device (itself on the CPU)."""
        if device.type == "cpu":
            return self
        tensors = ("ids", "position_ids", "segment_ids", "sequence_ids", "first_tokens")
        moved = {name: getattr(self.batch, name).to(device, non_blocking=True) for name in tensors}
        targets = {
            kind: TargetTensors(
                positions=wanted.positions.to(device, non_blocking=True),
                labels=wanted.labels.to(device, non_blocking=True),
                extra={name: values.to(device, non_blocking=True) for name, values in wanted.extra.items()},
                anchors={name: places.to(device, non_blocking=True) for name, places in wanted.anchors.items()},
            )
            for kind, wanted in self.targets.items()
        }
        return MicroBatch(replace(self.batch, **moved), targets)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one optimizer step computes on.

    Attributes:
        micro_batches: In order.
        counts: Predictions of each objective over the whole step: the losses' denominators.
        num_tokens: Real tokens.
        num_sequences: Sequences.
        num_slots: Tokens computed on, filler counted; num_tokens / num_slots is the fill.
        squared_lengths: Sum of squared sequence lengths (the cost of attention).
        key: Which batch this is, for messages: seed, refresh and number of its first instance.
    """

    micro_batches: tuple[MicroBatch, ...]
    counts: dict[str, int]
    num_tokens: int
    num_sequences: int
    num_slots: int
    squared_lengths: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collator:
    """Turns rows of a plan into a step's tensors; a frozen value, the same rows give the same tensors.

    Attributes:
        format, masking, replacement, objectives: The recipe's choices.
        vocabulary: Special ids and corpus counts.
        take: Reads token ranges of the corpus.
        separator_points: Where the format puts extra separators (`Format.separator_points`).
        seed: The run's seed.
        row_length: Slots in a row; no sequence is longer.
        tokens_per_microbatch: Slots of a forward and backward pass (rounded down to whole rows, at least one).
        dropout: Whether to give dropout keys.
        samples: Whether a generator draws tokens: its targets then carry one uniform number each ("sampling").
    """

    format: Format
    masking: Masking
    replacement: Replacement
    objectives: tuple[Objective, ...]
    vocabulary: VocabularyFacts
    take: TakeTokens
    separator_points: IntArray
    seed: int
    row_length: int
    tokens_per_microbatch: int
    dropout: bool = True
    samples: bool = False

    def collate(self, rows: Rows, step: int) -> StepBatch:
        """Lay out, corrupt, pack and cut.

        Args:
            rows: The instances of this step.
            step: Number of the step, which keys dropout.
        """
        lengths = self.format.lengths(rows.plan, self.separator_points)
        packing = pack(lengths, self.row_length)
        plan = rows.plan.rows(packing.order)
        instances = self.format.lay_out(plan, self.take, self.vocabulary.special_tokens, self.separator_points)
        assert len(instances.ids) == lengths.sum(), "Format.lengths says what lay_out makes"
        draws = Draws(self.seed, rows.refresh[packing.order], rows.index[packing.order])
        examples = corrupt(instances, self.masking, self.replacement, draws, self.vocabulary)
        targets = {objective.kind: objective.targets(examples) for objective in self.objectives}
        if self.samples:
            for objective in self.objectives:
                if objective.on_generator:
                    targets[objective.kind] = with_sampling(targets[objective.kind], instances, draws)
        return StepBatch(
            micro_batches=tuple(self._cut(instances, examples.corrupted, targets, packing, step)),
            counts={kind: wanted.count for kind, wanted in targets.items()},
            num_tokens=len(instances.ids),
            num_sequences=len(instances),
            num_slots=packing.num_rows * self.row_length,
            squared_lengths=int((instances.lengths**2).sum()),
            key=f"seed {self.seed}, drawing {rows.refresh[0]}, first instance {rows.index[0]}",
        )

    def _cut(
        self,
        instances: Instances,
        corrupted: IntArray,
        targets: Mapping[str, Targets],
        packing: Packing,
        step: int,
    ) -> Iterator[MicroBatch]:
        num_slots = packing.num_rows * self.row_length
        row_bounds = _even_cuts(packing.num_rows, max(1, self.tokens_per_microbatch // self.row_length))
        slot_bounds = row_bounds * self.row_length
        bounds = np.searchsorted(packing.rows, row_bounds)
        num_sequences = np.diff(bounds)
        first_slots = packing.rows * self.row_length + packing.offsets
        first_tokens = first_slots - np.repeat(slot_bounds[:-1], num_sequences)
        # The stream of all rows is every sequence and the filler behind it, in turns.
        stretches = np.stack([instances.lengths, np.diff(first_slots, append=num_slots) - instances.lengths], axis=1)
        numbers = np.full(stretches.shape, -1)
        numbers[:, 0] = np.arange(len(instances)) - np.repeat(bounds[:-1], num_sequences)
        sequence_ids = np.repeat(numbers, stretches.ravel())
        slots = np.flatnonzero(sequence_ids >= 0)
        ids = _spread(num_slots, slots, corrupted, self.vocabulary.special_tokens.pad)
        segment_ids = np.zeros(num_slots, dtype=np.int64)
        if instances.segment_ids.any():
            segment_ids = _spread(num_slots, slots, instances.segment_ids, 0)
        position_ids = np.arange(num_slots)
        position_ids -= np.repeat(first_slots, stretches.sum(axis=1))
        position_ids[sequence_ids < 0] = 0
        cuts = {
            objective.kind: _cut_targets(targets[objective.kind], None, bounds)
            if objective.predicts == "sequence"
            else _cut_targets(targets[objective.kind], slots, slot_bounds)
            for objective in self.objectives
        }
        for number, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
            part = slice(*slot_bounds[number : number + 2])
            batch = FlatBatch(
                ids=torch.from_numpy(ids[part]),
                position_ids=torch.from_numpy(position_ids[part]),
                segment_ids=torch.from_numpy(segment_ids[part]),
                sequence_ids=torch.from_numpy(sequence_ids[part]),
                first_tokens=torch.from_numpy(first_tokens[first:last]),
                row_length=self.row_length,
                num_tokens=int(instances.cu_seqlens[last] - instances.cu_seqlens[first]),
                dropout_key=integer_key(self.seed, "dropout", step, number) if self.dropout else None,
            )
            yield MicroBatch(batch, {kind: parts[number] for kind, parts in cuts.items()})


def with_sampling(targets: Targets, instances: Instances, draws: Draws) -> Targets:
    """Give each token target the uniform number that a generator's sample is drawn with, keyed like its mask."""
    sequences = instances.sequence_ids[targets.positions]
    uniform = draws.uniform_at("generator sample", sequences, targets.positions - instances.cu_seqlens[sequences])
    return replace(targets, extra={**targets.extra, "sampling": uniform.astype(np.float32)})


def _even_cuts(num_rows: int, rows_at_once: int) -> IntArray:
    # As few parts as the limit allows, as equal as can be: one row more than fits would otherwise be a part of its
    # own, which costs a whole pass over the weights.
    num_parts = -(-num_rows // rows_at_once)
    return np.arange(num_parts + 1) * num_rows // max(1, num_parts)


def _spread(num_slots: int, slots: IntArray, values: IntArray, filler: int) -> IntArray:
    spread = np.full(num_slots, filler, dtype=np.int64)
    spread[slots] = values.astype(np.int64, copy=False)  # numpy scatters what has the right type twice as fast
    return spread


def _cut_targets(targets: Targets, slots: IntArray | None, bounds: IntArray) -> list[TargetTensors]:
    """Cut targets where micro-batches begin and end, and count positions from each one's beginning.

    Args:
        targets: What is predicted; positions ascend.
        slots: Shape (T,), slot of each token; None where positions are sequence numbers.
        bounds: Shape (C+1,), first slot or sequence of each of C micro-batches, and how many there are.
    """
    places = targets.positions if slots is None else slots[targets.positions]
    assert (places[1:] >= places[:-1]).all(), "Objective.targets says that positions ascend"
    ends = np.searchsorted(places, bounds)
    begins = np.repeat(bounds[:-1], np.diff(ends))
    positions = (places - begins).astype(np.int64, copy=False)
    labels = targets.labels.astype(np.int64, copy=False)
    # An anchor is in its target's sequence, and a sequence is never cut, so it is in the same micro-batch.
    anchors = {
        name: (each if slots is None else slots[each]).astype(np.int64, copy=False) - begins
        for name, each in targets.anchors.items()
    }
    return [
        TargetTensors(
            positions=torch.from_numpy(positions[first:last]),
            labels=torch.from_numpy(labels[first:last]),
            extra={name: torch.from_numpy(values[first:last]) for name, values in targets.extra.items()},
            anchors={name: torch.from_numpy(places[first:last]) for name, places in anchors.items()},
        )
        for first, last in itertools.pairwise(ends.tolist())
    ]


def total_counts(batches: Sequence[StepBatch]) -> dict[str, int]:
    """Add up the predictions of several steps, by objective."""
    totals: dict[str, int] = {}
    for batch in batches:
        for kind, count in batch.counts.items():
            totals[kind] = totals.get(kind, 0) + count
    return totals
