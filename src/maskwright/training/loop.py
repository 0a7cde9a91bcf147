"""The training loop, a generator of step reports; its caller logs, evaluates, saves checkpoints and stops."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from maskwright.fitting.budget import Budget, Shape, Spent, rate_factor
from maskwright.recipes.optimization import DECAY_SHARE
from maskwright.training.batches import StepBatch
from maskwright.training.contention import SpinControl
from maskwright.training.distributed import all_reduce_counts, all_reduce_max_gathering, rank, world_size
from maskwright.training.optimizer import Optimizer
from maskwright.training.sampler import Cursor
from maskwright.training.step import Step, StepResult, TrainedModel, skips_on_device


class Sampler(Protocol):
    """The order of the data, as `InstanceSampler`. Rows that it reads have `epochs`, a fraction that includes them."""

    def start(self) -> Cursor: ...

    def read(self, cursor: Cursor, count: int) -> tuple[Any, Cursor]: ...

    def next_epoch(self, cursor: Cursor) -> Cursor: ...


class RowCollator(Protocol):
    """Makes step batches, or a rank's share of their micro-batches; `batches.Collator` is one."""

    def collate(self, rows: Any, step: int, share: slice = ...) -> StepBatch: ...


STALL_SECONDS = 60.0
"""A batch that takes longer is reported."""

PreparedBatch = tuple[StepBatch, Cursor, float]
"""A batch, the cursor after it, and the epochs including it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A share of the budget with one sequence length, masking and batch size; at progress `until` it ends.

    `batch_sequences` None is the schedule's.
    """

    until: float
    sampler: Sampler
    collator: RowCollator
    batch_sequences: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a run between two steps; with weights and moments, all that a checkpoint needs.

    The cursor belongs to the phase; epochs are those of the first source, as a fraction.
    """

    spent: Spent
    phase: int
    cursor: Cursor
    epochs: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        spent, cursor = dataclasses.asdict(self.spent), self.cursor.to_json()
        return {"spent": spent, "phase": self.phase, "cursor": cursor, "epochs": self.epochs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Position":
        """Read what `to_json` wrote."""
        return cls(Spent(**data["spent"]), data["phase"], Cursor.from_json(data["cursor"]), data["epochs"])


@dataclass(frozen=True, slots=True)
class StepReport:
    """The numbers of one step.

    Attributes:
        position: After the step.
        progress: Share of the budget spent after the step.
        batch: For its counts (targets, tokens, sequences).
        flops: Training FLOPs of the step by the documented formula.
        skipped_flops: Those of them that the step did not compute.
        seconds: Wall clock of the step, waiting included.
        waited: Seconds in which the device was idle because the batch was not ready.
        is_contended: Whether other processes compete for the cores (`SpinControl`); False on a GPU.
        rank_seconds: Each rank's seconds per token of its share, for batch and gradients, without waiting for others.
    """

    position: Position
    result: StepResult
    learning_rate: float
    progress: float
    batch: StepBatch
    flops: float
    skipped_flops: float
    seconds: float
    waited: float
    is_contended: bool = False
    rank_seconds: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate (`budget.rate_factor`), batch size, and the largest gradient norm (0 is off)."""

    shape: Shape
    peak: float
    warmup_share: float
    batch_sequences: int
    clip_norm: float
    decay_share: float = DECAY_SHARE


def train(
    model: TrainedModel,
    optimizer: Optimizer,
    phases: Sequence[Phase],
    position: Position,
    *,
    budget: Budget,
    schedule: Schedule,
    flops_of: Callable[[StepBatch], float],
    skipped_flops_of: Callable[[StepBatch], float] = lambda batch: 0.0,
    autocast: torch.dtype | None = None,
    running: Callable[[float], float] = lambda now: now,
    on_stall: Callable[[int], None] = lambda step: None,
) -> Iterator[StepReport]:
    """Train until the budget is spent, yielding a report after each step.

    Without what saves time, a step is: read the next instances, collate them, compute the gradients (`Step`), update
    the weights. A thread prepares the next batch during a step; batches are functions of their cursor, so an unused one
    is dropped when the loop ends. On a GPU the next step's gradients are launched before this step's numbers are read;
    weights and moments are nevertheless those after the reported step.

    Args:
        optimizer: Over the model's parameters, at `position`.
        autocast: Matmul type (bfloat16); None is fp32.
        running: Leaves out the time in which the process was stopped (`StopRequest.running`).
        on_stall: Called with the number of steps done after each 60 s of waiting for one batch.
    """
    started = running(time.perf_counter()) - position.spent.seconds
    device = next(model.parameters()).device
    launches_ahead = skips_on_device(device, optimizer)
    share = slice(rank(), None, world_size())
    launched: tuple[Step, Cursor, float] | None = None
    own_seconds = 0.0

    def launch(prepared: PreparedBatch, number: int) -> tuple[Step, Cursor, float]:
        batch, cursor, epochs = prepared
        return Step(model, optimizer, batch, number, autocast), cursor, epochs

    def drop_launched() -> None:
        if launched is not None:
            launched[0].drop()

    def submit(phase: Phase, cursor: Cursor, step: int) -> Future[PreparedBatch]:
        count = phase.batch_sequences or schedule.batch_sequences
        return pool.submit(_prepare, phase, cursor, count, step, share)

    def received(future: Future[PreparedBatch]) -> PreparedBatch:
        nonlocal own_seconds
        waiting_since = time.monotonic()
        while wait([future], STALL_SECONDS).not_done:
            on_stall(position.spent.steps)
        batch, cursor, epochs = future.result()
        own_seconds += time.monotonic() - waiting_since
        summed = all_reduce_counts(batch.counts | batch.skipped_tokens)
        counts, skipped = ({name: summed[name] for name in each} for each in (batch.counts, batch.skipped_tokens))
        return replace(batch, counts=counts, skipped_tokens=skipped), cursor, epochs

    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool, contextlib.ExitStack() as at_end:
        at_end.callback(drop_launched)
        watches_load = device.type == "cpu" and world_size() == 1  # The other ranks keep the cores busy too.
        spin_control = at_end.enter_context(contextlib.closing(SpinControl())) if watches_load else None
        batch_ahead: Future[PreparedBatch] | None = None
        while (progress := budget.progress(position.spent)) < 1:
            begun, waited = time.perf_counter(), 0.0
            while progress >= phases[position.phase].until:
                number = position.phase + 1
                before, after = phases[position.phase].sampler, phases[number].sampler
                # Another masking of the same sequences continues at the cursor; another length begins an epoch.
                cursor = position.cursor if after is before else after.next_epoch(position.cursor)
                position = replace(position, phase=number, cursor=cursor)
                drop_launched()
                batch_ahead = launched = None
            phase, step = phases[position.phase], position.spent.steps
            if launched is None:
                if batch_ahead is None:
                    batch_ahead = submit(phase, position.cursor, step)
                prepared = received(batch_ahead)
                waited = time.perf_counter() - begun
                batch_ahead = submit(phase, prepared[1], step + 1)
                launched = launch(prepared, step)
            (current, cursor, epochs), launched = launched, None
            learning_rate = schedule.peak * rate_factor(
                schedule.shape, progress, schedule.warmup_share, schedule.decay_share
            )
            current.update(learning_rate, schedule.clip_norm)
            # After the last step, and before another length, these gradients are wasted.
            if launches_ahead and batch_ahead is not None:
                waiting_since = time.perf_counter()
                prepared = received(batch_ahead)
                if current.is_done:  # Otherwise the device was not idle.
                    waited += time.perf_counter() - waiting_since
                if any(prepared[0].counts.values()):  # Otherwise the next step raises.
                    batch_ahead = submit(phase, prepared[1], step + 2)
                    launched = launch(prepared, step + 1)
            result = current.result()
            batch, flops = current.batch, flops_of(current.batch)
            now = time.perf_counter()
            # Ranks have different shares of a batch.
            own_tokens = sum(each.batch.num_tokens for each in batch.micro_batches)
            own_seconds = (own_seconds + current.gradient_seconds) / max(1, own_tokens)
            # The ranks must agree on the progress.
            seconds, rank_seconds = all_reduce_max_gathering(running(now) - started, own_seconds)
            own_seconds = 0.0
            spent = Spent(
                steps=step + 1,
                tokens=position.spent.tokens + batch.num_tokens,
                seconds=seconds,
                flops=position.spent.flops + flops,
            )
            position = Position(spent, position.phase, cursor, epochs)
            yield StepReport(
                position=position,
                result=result,
                learning_rate=learning_rate,
                progress=budget.progress(spent),
                batch=batch,
                flops=flops,
                skipped_flops=skipped_flops_of(batch),
                seconds=now - begun,
                waited=waited,
                is_contended=spin_control is not None and spin_control.check(),
                rank_seconds=rank_seconds,
            )


def _prepare(phase: Phase, cursor: Cursor, count: int, step: int, share: slice) -> PreparedBatch:
    rows, after = phase.sampler.read(cursor, count)
    return phase.collator.collate(rows, step, share), after, rows.epochs
