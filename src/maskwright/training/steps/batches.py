"""The batches of a step: instances laid out, corrupted and cut into micro-batches."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maskwright.core.randomness import RandomNumbers, integer_key
from maskwright.core.tensors import PackedBatch, TargetTensors
from maskwright.core.types import IntArray, Targets
from maskwright.model.config import EncoderConfig
from maskwright.pretext.formats.base import GatherTokens, assemble, sequence_lengths
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts, corrupt
from maskwright.training.steps.sampler import Rows
from maskwright.training.steps.transfer import move


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The data of one forward and backward pass.

    `output_positions` are the tokens whose last hidden states the objectives on the "encoder" and the "generator" use
    (see the function of that name); None, or no entry, stands for all.
    """

    batch: PackedBatch
    targets: dict[str, TargetTensors]
    output_positions: Mapping[str, Tensor | None] = field(default_factory=dict)


_CPU = torch.device("cpu")
_KEY_INDEXES = 8
# Above this share of the tokens, gathering them is assumed to cost what the last layer saves: not measured.
_MAX_OUTPUT_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The data of one optimizer step, or one rank's share of it; sizes are those of the whole step.

    Attributes:
        micro_batches: In order; of the type that the model's `losses` takes (`MicroBatch` in pretraining).
        counts: Predictions of each objective, the losses' denominators: a collator's are of these micro-batches, and
            the loop sums them over the ranks.
        squared_lengths: Sum of squared sequence lengths (the cost of attention).
        skipped_tokens: Tokens that the last layer of each encoder does not compute, summed as `counts` are.
        key: Which batch this is, for messages: seed, epoch (from 1), mask sample, and the numbers of its sequences.
    """

    micro_batches: tuple[Any, ...]
    counts: dict[str, int]
    num_tokens: int
    num_sequences: int
    squared_lengths: int
    key: str
    skipped_tokens: dict[str, int] = field(default_factory=dict)

    def without_dropout(self) -> "StepBatch":
        """Return the same batch with dropout off."""
        undropped = (replace(each, batch=replace(each.batch, dropout_key=None)) for each in self.micro_batches)
        return replace(self, micro_batches=tuple(undropped))


@dataclass(frozen=True, slots=True, kw_only=True)
class Collator:
    """Turns rows of a plan into a step's tensors; the same rows give the same tensors.

    Attributes:
        separator_points: Where the format puts extra separators (`Format.separator_points`).
        tokens_per_microbatch: Most tokens of a forward and backward pass; a longer sequence has one of its own.
        ranks: The number of micro-batches is a multiple of it, where that is possible.
        encoders: The recipe's encoders with their objectives (`Recipe.encoders`).
    """

    masking: Masking
    replacement: Replacement
    objectives: tuple[Objective, ...]
    vocabulary: VocabularyFacts
    gather: GatherTokens
    separator_points: IntArray
    seed: int
    max_length: int
    tokens_per_microbatch: int
    encoders: Mapping[str, tuple[EncoderConfig, Sequence[Objective]]]
    device: torch.device = _CPU
    dropout: bool = True
    ranks: int = 1

    def collate(self, rows: Rows, step: int, share: slice = slice(None)) -> StepBatch:
        """Cut a step, whose number keys dropout, into micro-batches, and lay out and corrupt those in `share`.

        Only their text is read: where a step is cut follows from the lengths of all its sequences.
        """
        lengths = sequence_lengths(rows.plan, self.separator_points)
        bounds = even_bounds(np.concatenate([[0], np.cumsum(lengths)]), self.tokens_per_microbatch, self.ranks)
        micro_batches = [
            self._micro_batch(rows.part(np.arange(first, last)), integer_key(self.seed, "dropout", step, number))
            for number, (first, last) in list(enumerate(itertools.pairwise(bounds.tolist())))[share]
        ]
        kinds = [objective.kind for objective in self.objectives]
        return StepBatch(
            micro_batches=tuple(move(each, self.device) for each in micro_batches),
            counts={kind: sum(len(each.targets[kind].labels) for each in micro_batches) for kind in kinds},
            num_tokens=int(lengths.sum()),
            num_sequences=len(lengths),
            squared_lengths=int((lengths**2).sum()),
            skipped_tokens={name: sum(_skipped(each, name) for each in micro_batches) for name in self.encoders},
            key=f"seed {self.seed}, epoch {math.ceil(round(rows.epochs, 9))}, mask sample {rows.mask_sample[0]}, "
            + "sequences "
            + ", ".join(map(str, rows.index[:_KEY_INDEXES]))
            + f" and {len(rows.index) - _KEY_INDEXES} more" * (len(rows.index) > _KEY_INDEXES),
        )

    def _micro_batch(self, rows: Rows, dropout_key: int) -> MicroBatch:
        specials, points = self.vocabulary.special_tokens, self.separator_points
        instances = assemble(rows.plan, self.gather, specials, separator_points=points)
        rng = RandomNumbers(self.seed, rows.mask_sample, rows.index)
        examples = corrupt(instances, self.masking, self.replacement, rng, self.vocabulary)
        targets = {objective.kind: objective.targets(examples) for objective in self.objectives}
        for each in targets.values():
            assert (each.positions[1:] >= each.positions[:-1]).all(), "Objective.targets says that positions ascend"
        _, on_generator = self.encoders.get("generator", (None, ()))
        for objective in on_generator:  # The generator's token at each target is sampled from one uniform number.
            at = targets[objective.kind]
            uniform = rng.uniform_of("generator sample", instances.cu_seqlens, at.positions).astype(np.float32)
            targets[objective.kind] = replace(at, extra={**at.extra, "sampling": uniform})
        batch = PackedBatch.of(
            examples.corrupted,
            instances.segment_ids,
            instances.lengths,
            max_seqlen=self.max_length,
            dropout_key=dropout_key if self.dropout else None,
        )
        tensors = {kind: _as_tensors(each) for kind, each in targets.items()}
        positions = {
            name: output_positions(objectives, batch, tensors, pools=config.pooler) if objectives else None
            for name, (config, objectives) in self.encoders.items()
        }
        return MicroBatch(batch, tensors, positions)


def output_positions(
    objectives: Sequence[Objective], batch: PackedBatch, targets: Mapping[str, TargetTensors], *, pools: bool
) -> Tensor | None:
    """Return the tokens whose last hidden states the objectives of one encoder use. Shape (W,), int64, ascending.

    Anchors of targets count too and, if the encoder `pools`, the first token of each sequence. None stands for all:
    where most tokens are used, or none.
    """
    if any(objective.uses_all_tokens for objective in objectives):
        return None
    used = [batch.first_tokens] if pools else []
    for objective in objectives:
        if objective.predicts == "token":
            used += [targets[objective.kind].positions, *targets[objective.kind].anchors.values()]
    if not used:
        return None
    positions = torch.unique(torch.cat(used))
    return positions if 0 < len(positions) <= _MAX_OUTPUT_SHARE * batch.num_tokens else None


def _skipped(micro_batch: MicroBatch, encoder: str) -> int:
    positions = micro_batch.output_positions[encoder]
    return 0 if positions is None else micro_batch.batch.num_tokens - len(positions)


def _tensor(values: IntArray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64, copy=False))


def _as_tensors(targets: Targets) -> TargetTensors:
    return TargetTensors(
        positions=_tensor(targets.positions),
        labels=_tensor(targets.labels),
        extra={name: torch.from_numpy(each) for name, each in targets.extra.items()},
        anchors={name: _tensor(each) for name, each in targets.anchors.items()},
    )


def even_bounds(cu_seqlens: IntArray, limit: int, multiple: int = 1) -> IntArray:
    """Cut sequences in their order; return the first sequence of each batch, and B.

    Batches are few and of about equal size. A sequence longer than `limit` tokens is a batch of its own. The number of
    batches is a multiple of `multiple`, unless long sequences prevent that; it is never less if there are as many
    sequences.

    Args:
        cu_seqlens: Shape (B+1,), the first token of each sequence, and T.
    """
    long = np.flatnonzero(np.diff(cu_seqlens) > limit)
    edges = np.unique([0, *long, *(long + 1), len(cu_seqlens) - 1])
    runs = [
        first + _even_bounds(cu_seqlens[first : last + 1], limit, multiple) for first, last in itertools.pairwise(edges)
    ]
    return np.unique(np.concatenate([edges, *runs]))


def _even_bounds(cu_seqlens: IntArray, limit: int, multiple: int) -> IntArray:
    # Of sequences of which none is longer than the limit, or of one.
    cu_seqlens = cu_seqlens - cu_seqlens[0]
    num_sequences, num_tokens = len(cu_seqlens) - 1, int(cu_seqlens[-1])
    for num_parts in range(multiple * max(1, -(-num_tokens // (multiple * limit))), num_sequences, multiple):
        bounds = np.unique(np.searchsorted(cu_seqlens, np.arange(num_parts + 1) * num_tokens / num_parts))
        if np.diff(cu_seqlens[bounds]).max() <= limit and len(bounds) > multiple:
            return bounds
    return np.arange(num_sequences + 1)
