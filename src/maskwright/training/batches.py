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
        special = self.vocabulary.special_tokens
        laid_out = self.format.lay_out(rows.plan, self.take, special, self.separator_points)
        packing = pack(laid_out.lengths, self.row_length)
        instances = reorder(laid_out, packing.order)
        draws = Draws(self.seed, rows.refresh[packing.order], rows.index[packing.order])
        examples = corrupt(instances, self.masking, self.replacement, draws, self.vocabulary)
        targets = {objective.kind: objective.targets(examples) for objective in self.objectives}
        if self.samples:
            for objective in self.objectives:
                if objective.on_generator:
                    targets[objective.kind] = with_sampling(targets[objective.kind], instances, draws)
        slots = self._slots(instances, packing)
        return StepBatch(
            micro_batches=tuple(self._cut(instances, examples.corrupted, targets, packing, slots, step)),
            counts={kind: wanted.count for kind, wanted in targets.items()},
            num_tokens=len(instances.ids),
            num_sequences=len(instances),
            num_slots=packing.num_rows * self.row_length,
            squared_lengths=int((instances.lengths.astype(np.int64) ** 2).sum()),
            key=f"seed {self.seed}, drawing {rows.refresh[0]}, first instance {rows.index[0]}",
        )

    def _slots(self, instances: Instances, packing: Packing) -> IntArray:
        """Slot of each token in the stream of all rows. Shape (T,), ascending."""
        first = packing.rows * self.row_length + packing.offsets
        lengths = instances.lengths
        return np.repeat(first - instances.cu_seqlens[:-1], lengths) + np.arange(len(instances.ids))

    def _cut(
        self,
        instances: Instances,
        corrupted: IntArray,
        targets: Mapping[str, Targets],
        packing: Packing,
        slots: IntArray,
        step: int,
    ) -> Iterator[MicroBatch]:
        num_slots = packing.num_rows * self.row_length
        lengths = instances.lengths
        pad = self.vocabulary.special_tokens.pad
        ids = _spread(num_slots, slots, corrupted, pad)
        counted = np.arange(len(instances.ids)) - np.repeat(instances.cu_seqlens[:-1], lengths)
        position_ids = _spread(num_slots, slots, counted, 0)
        segment_ids = _spread(num_slots, slots, instances.segment_ids, 0)
        sequence_ids = _spread(num_slots, slots, instances.sequence_ids, -1)
        first_slots = slots[instances.cu_seqlens[:-1]]
        predicts = {objective.kind: objective.predicts for objective in self.objectives}
        cuts = _even_cuts(packing.num_rows, max(1, self.tokens_per_microbatch // self.row_length))
        for number, (first_row, last_row) in enumerate(itertools.pairwise(cuts)):
            low, high = first_row * self.row_length, last_row * self.row_length
            first, last = np.searchsorted(packing.rows, (first_row, last_row))
            sequences = sequence_ids[low:high]
            batch = FlatBatch(
                ids=torch.from_numpy(ids[low:high]),
                position_ids=torch.from_numpy(position_ids[low:high]),
                segment_ids=torch.from_numpy(segment_ids[low:high]),
                sequence_ids=torch.from_numpy(np.where(sequences < 0, -1, sequences - first)),
                first_tokens=torch.from_numpy(first_slots[first:last] - low),
                row_length=self.row_length,
                num_tokens=int(lengths[first:last].sum()),
                dropout_key=integer_key(self.seed, "dropout", step, number) if self.dropout else None,
            )
            cut = {
                kind: _slice_targets(wanted, slots, low, high)
                if predicts[kind] != "sequence"
                else _slice_targets(wanted, None, int(first), int(last))
                for kind, wanted in targets.items()
            }
            yield MicroBatch(batch, cut)


def reorder(instances: Instances, order: IntArray) -> Instances:
    """Return the same sequences in another order.

    Args:
        instances: B sequences.
        order: Shape (K,), sequence numbers; may leave some out.
    """
    lengths = instances.lengths[order]
    cu_seqlens = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.repeat(instances.cu_seqlens[:-1][order] - cu_seqlens[:-1], lengths) + np.arange(cu_seqlens[-1])
    return Instances(
        ids=instances.ids[tokens],
        segment_ids=instances.segment_ids[tokens],
        word_starts=instances.word_starts[tokens],
        special=instances.special[tokens],
        cu_seqlens=cu_seqlens,
        pair_labels=instances.pair_labels[order],
        level_starts={level: starts[tokens] for level, starts in instances.level_starts.items()},
    )


def with_sampling(targets: Targets, instances: Instances, draws: Draws) -> Targets:
    """Give each token target the uniform number that a generator's sample is drawn with, keyed like its mask."""
    sequences = instances.sequence_ids[targets.positions]
    uniform = draws.uniform_at("generator sample", sequences, targets.positions - instances.cu_seqlens[sequences])
    return replace(targets, extra={**targets.extra, "sampling": uniform.astype(np.float32)})


def _even_cuts(num_rows: int, rows_at_once: int) -> list[int]:
    # As few parts as the limit allows, as equal as can be: one row more than fits would otherwise be a part of its
    # own, which costs a whole pass over the weights.
    if not num_rows:
        return [0]
    num_parts = -(-num_rows // rows_at_once)
    return [part * num_rows // num_parts for part in range(num_parts + 1)]


def _spread(num_slots: int, slots: IntArray, values: IntArray, filler: int) -> IntArray:
    spread = np.full(num_slots, filler, dtype=np.int64)
    spread[slots] = values
    return spread


def _slice_targets(targets: Targets, slots: IntArray | None, low: int, high: int) -> TargetTensors:
    positions = targets.positions if slots is None else slots[targets.positions]
    chosen = np.flatnonzero((positions >= low) & (positions < high))
    return TargetTensors(
        positions=torch.from_numpy((positions[chosen] - low).astype(np.int64)),
        labels=torch.from_numpy(targets.labels[chosen].astype(np.int64)),
        extra={name: torch.from_numpy(values[chosen]) for name, values in targets.extra.items()},
        anchors={name: _slice_anchors(places[chosen], slots, low) for name, places in targets.anchors.items()},
    )


def _slice_anchors(places: IntArray, slots: IntArray | None, low: int) -> torch.Tensor:
    # An anchor is in its target's sequence, and a sequence is never cut, so it is in the same micro-batch.
    moved = places if slots is None else slots[places]
    return torch.from_numpy((moved - low).astype(np.int64))


def total_counts(batches: Sequence[StepBatch]) -> dict[str, int]:
    """Add up the predictions of several steps, by objective."""
    totals: dict[str, int] = {}
    for batch in batches:
        for kind, count in batch.counts.items():
            totals[kind] = totals.get(kind, 0) + count
    return totals
