"""From rows of a plan to what a step computes on: laid out, corrupted, packed into rows, cut into micro-batches."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskwright.core.randomness import RandomNumbers, integer_keys
from maskwright.core.row_counts import rounded_up
from maskwright.core.tensors import FlatBatch, TargetTensors
from maskwright.core.types import Instances, IntArray, TakenTokens, Targets
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.formats.base import Format, TakeTokens
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts
from maskwright.training.cutting import Cut, cut_stream
from maskwright.training.packing import Packing, pack
from maskwright.training.stream import Rows


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward and backward pass computes on.

    Attributes:
        batch: The flat tokens.
        targets: For each objective, by kind.
        output_positions: For the encoder and the generator, the tokens whose last hidden states their objectives use
            (`model.output_positions_of`); None before they are computed.
    """

    batch: FlatBatch
    targets: dict[str, TargetTensors]
    output_positions: Mapping[str, Tensor | None] | None = None

    def to(self, device: torch.device) -> "MicroBatch":
        """Return the same micro-batch on a device (itself if it is there), moved in one piece."""
        if self.batch.ids.device.type == device.type:
            return self
        tensors = _Moving(device)
        moved = {name: tensors.add(getattr(self.batch, name)) for name in _TENSORS}
        targets = {
            kind: (
                tensors.add(wanted.positions),
                tensors.add(wanted.labels),
                {name: tensors.add(values) for name, values in wanted.extra.items()},
                {name: tensors.add(places) for name, places in wanted.anchors.items()},
            )
            for kind, wanted in self.targets.items()
        }
        positions = (
            None
            if self.output_positions is None
            else {tower: tensors.add(each) for tower, each in self.output_positions.items()}
        )
        there = tensors.move()
        return MicroBatch(
            _with_tensors(self.batch, {name: there(number) for name, number in moved.items()}),
            {
                kind: TargetTensors(
                    positions=_present(there(positions)),
                    labels=_present(there(labels)),
                    extra={name: _present(there(number)) for name, number in extra.items()},
                    anchors={name: _present(there(number)) for name, number in anchors.items()},
                )
                for kind, (positions, labels, extra, anchors) in targets.items()
            },
            None if positions is None else {tower: there(number) for tower, number in positions.items()},
        )


_BY_SLOT = ("ids", "position_ids", "segment_ids", "sequence_ids")
_TENSORS = (*_BY_SLOT, "first_tokens", "row_slots")


class _Moving:
    """Tensors that go to a device together: in one copy from memory that a GPU reads by itself, which nobody waits for.

    Args:
        device: Where they go.
    """

    _EDGE = 16
    """Bytes: where the next tensor begins is a multiple."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._tensors = device, list[Tensor | None]()

    def add(self, tensor: Tensor | None) -> int:
        """Take a tensor along, or None; return its number."""
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def move(self) -> Callable[[int], Tensor | None]:
        """Move all; return what gives the tensor of a number on the device."""
        sizes = [0 if each is None else -(-each.nbytes // self._EDGE) * self._EDGE for each in self._tensors]
        begins = list(itertools.accumulate(sizes, initial=0))
        here = torch.empty(begins[-1], dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        # By NumPy: waking PyTorch's threads takes longer than copying so little.
        filled = here.numpy()
        for begin, tensor in zip(begins, self._tensors, strict=False):
            if tensor is not None:
                values = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
                filled[begin : begin + len(values)] = values
        there = here.to(self._device, non_blocking=True)

        def moved(number: int) -> Tensor | None:
            tensor, begin = self._tensors[number], begins[number]
            if tensor is None:
                return None
            return there[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)

        return moved


def _with_tensors(batch: FlatBatch, tensors: Mapping[str, Any]) -> FlatBatch:
    return replace(batch, **tensors)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one optimizer step computes on.

    Attributes:
        micro_batches: In order; of the type that the model's `losses` takes (`MicroBatch` in pretraining).
        counts: Predictions of each objective over the whole step: the losses' denominators.
        num_tokens: Real tokens.
        num_sequences: Sequences.
        num_slots: Tokens that all but attention over rows computes on, the few counted that fill up a micro-batch
            (`core.row_counts`); num_tokens / num_slots is the fill.
        squared_lengths: Sum of squared sequence lengths (the cost of attention).
        key: Which batch this is, for messages: seed, refresh and number of its first instance.
    """

    micro_batches: tuple[Any, ...]
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
        tokens_per_microbatch: Most slots of the rows of a forward and backward pass (rounded down to whole rows, at
            least one).
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
        # Levels of units are not laid out where nobody reads them.
        take = self.take if self.masking.levels else _without_levels(self.take)
        instances = self.format.lay_out(plan, take, self.vocabulary.special_tokens, self.separator_points)
        assert len(instances.ids) == lengths.sum(), "Format.lengths says what lay_out makes"
        rng = RandomNumbers(self.seed, rows.refresh[packing.order], rows.index[packing.order])
        examples = corrupt(instances, self.masking, self.replacement, rng, self.vocabulary)
        targets = {objective.kind: objective.targets(examples) for objective in self.objectives}
        if self.samples:
            for objective in self.objectives:
                if objective.on_generator:
                    targets[objective.kind] = with_sampling(targets[objective.kind], instances, rng)
        micro_batches = tuple(self._cut(instances, examples.corrupted, targets, packing, step))
        return StepBatch(
            micro_batches=micro_batches,
            counts={kind: wanted.count for kind, wanted in targets.items()},
            num_tokens=len(instances.ids),
            num_sequences=len(instances),
            num_slots=sum(each.batch.ids.numel() for each in micro_batches),
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
        # The filler of rows is left out: a micro-batch is its sequences, one behind the other, and what rounds it up.
        row_bounds = _even_cuts(packing.num_rows, max(1, self.tokens_per_microbatch // self.row_length))
        bounds = np.searchsorted(packing.rows, row_bounds)
        token_bounds = instances.cu_seqlens[bounds]
        num_tokens, num_sequences, num_rows = (np.diff(each).tolist() for each in (token_bounds, bounds, row_bounds))
        sizes = [rounded_up(size) for size in num_tokens]
        slots = packing.rows * self.row_length + packing.offsets
        cut = Cut(
            cu_seqlens=instances.cu_seqlens,
            slots=slots - np.repeat(row_bounds[:-1] * self.row_length, num_sequences),
            bounds=bounds,
            begins=np.array(list(itertools.accumulate(sizes, initial=0))),
        )
        stream = cut_stream(cut, corrupted, instances.segment_ids, self.vocabulary.special_tokens.pad)
        first_tokens = instances.cu_seqlens[:-1] - np.repeat(token_bounds[:-1], num_sequences)
        tensors = zip(
            *(_parts(getattr(stream, name), sizes) for name in _BY_SLOT),
            _parts(stream.row_slots, num_tokens),
            _parts(first_tokens, num_sequences),
            strict=True,
        )
        cuts = {
            objective.kind: _cut_targets(
                targets[objective.kind], bounds if objective.predicts == "sequence" else token_bounds
            )
            for objective in self.objectives
        }
        keys = integer_keys(self.seed, "dropout", step, len(sizes)) if self.dropout else [None] * len(sizes)
        for number, (ids, position_ids, segment_ids, sequence_ids, row_slots, firsts) in enumerate(tensors):
            batch = FlatBatch(
                ids=ids,
                position_ids=position_ids,
                segment_ids=segment_ids,
                sequence_ids=sequence_ids,
                first_tokens=firsts,
                row_length=self.row_length,
                num_tokens=num_tokens[number],
                row_slots=row_slots,
                num_rows=num_rows[number],
                dropout_key=keys[number],
            )
            yield MicroBatch(batch, {kind: parts[number] for kind, parts in cuts.items()})


def _without_levels(take: TakeTokens) -> TakeTokens:
    def taken(starts: IntArray, ends: IntArray) -> TakenTokens:
        tokens = take(starts, ends)
        return TakenTokens(tokens.ids, tokens.word_starts)

    return taken


def with_sampling(targets: Targets, instances: Instances, rng: RandomNumbers) -> Targets:
    """Give each token target the uniform number that a generator's sample is drawn with, keyed like its mask."""
    uniform = rng.uniform_of("generator sample", instances.cu_seqlens, targets.positions)
    return replace(targets, extra={**targets.extra, "sampling": uniform.astype(np.float32)})


def _even_cuts(num_rows: int, rows_at_once: int) -> IntArray:
    # As few parts as the limit allows, as equal as can be: one row more than fits would otherwise be a part of its
    # own, which costs a whole pass over the weights.
    num_parts = -(-num_rows // rows_at_once)
    return np.arange(num_parts + 1) * num_rows // max(1, num_parts)


def _parts(values: IntArray, sizes: list[int]) -> Sequence[Tensor]:
    return torch.from_numpy(values).split_with_sizes(sizes)


def _cut_targets(targets: Targets, bounds: IntArray) -> list[TargetTensors]:
    """Cut targets where micro-batches begin and end, and count positions from each one's beginning.

    Args:
        targets: What is predicted; positions ascend.
        bounds: Shape (C+1,), first token (or sequence, where positions are their numbers) of each of C micro-batches,
            and how many there are.
    """
    assert (targets.positions[1:] >= targets.positions[:-1]).all(), "Objective.targets says that positions ascend"
    ends = np.searchsorted(targets.positions, bounds)
    begins = np.repeat(bounds[:-1], np.diff(ends))
    positions = (targets.positions - begins).astype(np.int64, copy=False)
    labels = targets.labels.astype(np.int64, copy=False)
    # An anchor is in its target's sequence, and a sequence is never cut, so it is in the same micro-batch.
    anchors = {name: (each - begins).astype(np.int64, copy=False) for name, each in targets.anchors.items()}
    sizes = np.diff(ends).tolist()
    parts = (
        _parts(positions, sizes),
        _parts(labels, sizes),
        _cut_named(targets.extra, sizes),
        _cut_named(anchors, sizes),
    )
    return [
        TargetTensors(positions=each, labels=asked, extra=extra, anchors=places)
        for each, asked, extra, places in zip(*parts, strict=True)
    ]


def _cut_named(values: Mapping[str, IntArray], sizes: list[int]) -> Sequence[Mapping[str, Tensor]]:
    if not values:
        return [{} for _ in sizes]
    parts = {name: _parts(each, sizes) for name, each in values.items()}
    return [{name: each[number] for name, each in parts.items()} for number in range(len(sizes))]


def total_counts(batches: Sequence[StepBatch]) -> dict[str, int]:
    """Add up the predictions of several steps, by objective."""
    totals: dict[str, int] = {}
    for batch in batches:
        for kind, count in batch.counts.items():
            totals[kind] = totals.get(kind, 0) + count
    return totals
