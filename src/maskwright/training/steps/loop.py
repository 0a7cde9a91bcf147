"""The training loop, a generator of step reports; its caller logs, evaluates, saves checkpoints and stops.

A step reads the next instances, collates them, computes the gradients and updates the weights (`train`). Two objects
save time without changing what is computed: `Batches` prepares the next batch in a thread, and `Gradients` launches the
next step's gradients on a GPU before this step's numbers are read.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch

from maskwright.fitting.budget import Budget, Shape, Spent, rate_factor
from maskwright.recipes.optimization import DECAY_SHARE
from maskwright.training.ranks.distributed import all_reduce_counts, all_reduce_max_gathering, rank, world_size
from maskwright.training.ranks.gradients import GradientReducer
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.optimizer import Optimizer
from maskwright.training.steps.sampler import Cursor
from maskwright.training.steps.step import Step, StepResult, TrainedModel, skips_on_device


class Sampler(Protocol):
    """The order of the data; `InstanceSampler` is one."""

    def start(self) -> Cursor: ...

    def read(self, cursor: Cursor, count: int) -> tuple[Any, Cursor]: ...

    def next_epoch(self, cursor: Cursor) -> Cursor: ...


class RowCollator(Protocol):
    """Makes step batches, or a rank's share of their micro-batches; `batches.Collator` is one."""

    def collate(self, rows: Any, step: int, share: slice = ...) -> StepBatch: ...


STALL_SECONDS = 60.0
"""A batch that takes longer is reported."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A share of the budget with one sequence length, masking and batch size; at progress `until` it ends."""

    until: float
    sampler: Sampler
    collator: RowCollator
    batch_sequences: int


class BatchKey(NamedTuple):
    """The key of a step's batch: phase, cursor before it, and steps done before it."""

    phase: int
    cursor: Cursor
    step: int


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a run between two steps; with weights and moments, all that a checkpoint needs.

    The cursor belongs to the phase.
    """

    spent: Spent
    phase: int
    cursor: Cursor

    @property
    def epochs(self) -> float:
        """Epochs of the first source, as a fraction."""
        return self.cursor.epochs

    @property
    def next_batch(self) -> BatchKey:
        return BatchKey(self.phase, self.cursor, self.spent.steps)

    def at_progress(self, progress: float, phases: Sequence[Phase]) -> "Position":
        """Return the position in the phase of a progress, below 1."""
        position = self
        while progress >= phases[position.phase].until:
            number = position.phase + 1
            before, after = phases[position.phase].sampler, phases[number].sampler
            # Another masking of the same sequences continues at the cursor; another length begins an epoch.
            cursor = position.cursor if after is before else after.next_epoch(position.cursor)
            position = replace(position, phase=number, cursor=cursor)
        return position

    def to_json(self) -> dict[str, Any]:
        return {"spent": dataclasses.asdict(self.spent), "phase": self.phase, "cursor": self.cursor.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Position":
        return cls(Spent(**data["spent"]), data["phase"], Cursor.from_json(data["cursor"]))


@dataclass(frozen=True, slots=True)
class StepReport:
    """The numbers of one step.

    Attributes:
        position: After the step.
        progress: Share of the budget spent after the step.
        batch: For its counts (targets, tokens, sequences).
        flops: Training FLOPs of the step by the documented formula.
        seconds: Wall clock of the step, waiting included.
        waited: Seconds in which the device was idle because the batch was not ready.
        rank_seconds: Each rank's seconds per token of its share, for batch and gradients, without waiting for others.
    """

    position: Position
    result: StepResult
    learning_rate: float
    progress: float
    batch: StepBatch
    flops: float
    seconds: float
    waited: float
    rank_seconds: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate (`budget.rate_factor`) and the largest gradient norm (0 is off)."""

    shape: Shape
    peak: float
    warmup_share: float
    clip_norm: float
    decay_share: float = DECAY_SHARE

    def learning_rate(self, progress: float) -> float:
        """Return the learning rate of the step after this share of the budget."""
        return self.peak * rate_factor(self.shape, progress, self.warmup_share, self.decay_share)


def train(
    model: TrainedModel,
    optimizer: Optimizer,
    phases: Sequence[Phase],
    position: Position,
    *,
    budget: Budget,
    schedule: Schedule,
    flops_of: Callable[[StepBatch], float] = lambda batch: 0.0,
    autocast: torch.dtype | None = None,
    gradient_dtype: torch.dtype = torch.float32,
    running: Callable[[float], float] = lambda now: now,
    on_stall: Callable[[int], None] = lambda step: None,
) -> Iterator[StepReport]:
    """Train until the budget is spent, yielding a report after each step.

    Weights and moments are then those after the reported step.

    Args:
        optimizer: Over the model's parameters, at `position`.
        autocast: Matmul type (bfloat16); None is fp32.
        gradient_dtype: Type in which ranks exchange gradients.
        running: Leaves out the time in which the process was stopped (`StopRequest.running`).
        on_stall: Called with the number of steps done after each 60 s of waiting for one batch.
    """
    started = running(time.perf_counter()) - position.spent.seconds
    with (
        contextlib.closing(Batches(phases, on_stall)) as batches,
        contextlib.closing(
            Gradients(model, optimizer, batches, autocast, GradientReducer(optimizer.names, gradient_dtype))
        ) as gradients,
    ):
        while (progress := budget.progress(position.spent)) < 1:
            begun = time.perf_counter()
            position = position.at_progress(progress, phases)
            launched = gradients.launch(position.next_batch)  # Reads and collates the batch.
            step, learning_rate = launched.step, schedule.learning_rate(progress)
            step.update(learning_rate, schedule.clip_norm)
            gradients.launch_ahead(launched)
            result, flops = step.result(), flops_of(step.batch)
            # The ranks must agree on the progress.
            seconds, rank_seconds = all_reduce_max_gathering(
                running(time.perf_counter()) - started, launched.seconds_per_token()
            )
            spent = Spent(
                steps=position.spent.steps + 1,
                tokens=position.spent.tokens + step.batch.num_tokens,
                seconds=seconds,
                flops=position.spent.flops + flops,
            )
            position = Position(spent, position.phase, launched.prepared.next_key.cursor)
            yield StepReport(
                position=position,
                result=result,
                learning_rate=learning_rate,
                progress=budget.progress(spent),
                batch=step.batch,
                flops=flops,
                seconds=time.perf_counter() - begun,
                waited=launched.idle_seconds,
                rank_seconds=rank_seconds,
            )


class PreparedBatch(NamedTuple):
    """A batch, with the counts of all ranks, and seconds of waiting; unless a phase begins, `next_key` comes next."""

    key: BatchKey
    batch: StepBatch
    next_key: BatchKey
    waited: float


class Batches:
    """Reads and collates this rank's share of batches; a thread prepares the next batch while one is used.

    Batches are functions of their keys, so one that was prepared for another phase is dropped.
    """

    def __init__(self, phases: Sequence[Phase], on_stall: Callable[[int], None]) -> None:
        self._phases, self._on_stall = phases, on_stall
        self._share = slice(rank(), None, world_size())
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[BatchKey, Future[tuple[StepBatch, Cursor]]] | None = None

    def close(self) -> None:
        """Wait for the thread and end it."""
        self._pool.shutdown()

    def prepare(self, key: BatchKey) -> PreparedBatch:
        """Return a batch, and begin to prepare the one after it."""
        if self._next is None or self._next[0] != key:
            self._next = key, self._pool.submit(self._prepare, key)
        waiting_since = time.monotonic()
        while wait([future := self._next[1]], STALL_SECONDS).not_done:
            self._on_stall(key.step)
        (batch, cursor), waited = future.result(), time.monotonic() - waiting_since
        next_key = BatchKey(key.phase, cursor, key.step + 1)
        self._next = next_key, self._pool.submit(self._prepare, next_key)
        summed = all_reduce_counts(batch.counts | batch.skipped_tokens)
        counts, skipped = ({name: summed[name] for name in each} for each in (batch.counts, batch.skipped_tokens))
        return PreparedBatch(key, replace(batch, counts=counts, skipped_tokens=skipped), next_key, waited)

    def _prepare(self, key: BatchKey) -> tuple[StepBatch, Cursor]:
        phase = self._phases[key.phase]
        rows, after = phase.sampler.read(key.cursor, phase.batch_sequences)
        return phase.collator.collate(rows, key.step, self._share), after


class LaunchedStep(NamedTuple):
    """A step whose gradients are launched, its batch, and the seconds in which the device waited for that."""

    prepared: PreparedBatch
    step: Step
    idle_seconds: float

    def seconds_per_token(self) -> float:
        """Return this rank's seconds per token of its share, without waiting for others; after `step.result`."""
        tokens = sum(each.batch.num_tokens for each in self.step.batch.micro_batches)
        return float((self.prepared.waited + self.step.gradient_seconds) / max(1, tokens))


class Gradients:
    """Computes the gradients of steps; on a GPU those of the next step are launched before a step's numbers are read.

    They are wasted after the last step, and before another phase.
    """

    def __init__(
        self,
        model: TrainedModel,
        optimizer: Optimizer,
        batches: Batches,
        autocast: torch.dtype | None,
        reducer: GradientReducer,
    ) -> None:
        self._model, self._optimizer, self._batches = model, optimizer, batches
        self._autocast, self._reducer = autocast, reducer
        self._launches_ahead = skips_on_device(next(model.parameters()).device)
        self._next: LaunchedStep | None = None

    def close(self) -> None:
        """Drop the gradients that are not used."""
        if self._next is not None:
            self._next.step.drop()
            self._next = None

    def launch(self, key: BatchKey) -> LaunchedStep:
        """Return the step of a batch, launched now unless it was launched ahead."""
        if self._next is None or self._next.prepared.key != key:
            self.close()
            prepared = self._batches.prepare(key)
            return LaunchedStep(prepared, self._step(prepared), prepared.waited)
        launched, self._next = self._next, None
        return launched

    def launch_ahead(self, current: LaunchedStep) -> None:
        """Launch the step after the current one, whose update is launched, on a GPU."""
        if self._launches_ahead:
            prepared = self._batches.prepare(current.prepared.next_key)
            if any(prepared.batch.counts.values()):  # Otherwise `launch` raises.
                idle_seconds = prepared.waited if current.step.is_done else 0.0
                self._next = LaunchedStep(prepared, self._step(prepared), idle_seconds)

    def _step(self, prepared: PreparedBatch) -> Step:
        return Step(self._model, self._optimizer, prepared.batch, prepared.key.step, self._autocast, self._reducer)
