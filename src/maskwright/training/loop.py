"""The loop: a generator of reports. Whoever runs it logs, evaluates, checkpoints and stops with plain `if`s."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from maskwright.training.batches import StepBatch
from maskwright.training.budget import Budget, Spent
from maskwright.training.optimizer import Optimizer
from maskwright.training.schedule import Shape, rate_factor
from maskwright.training.step import Gradients, StepResult, TrainedModel, refuses_later
from maskwright.training.stream import Cursor


class Source(Protocol):
    """The order of the data; `Stream` is one."""

    def start(self) -> Cursor:
        """Return the cursor before the first row."""

    def read(self, cursor: Cursor, count: int) -> tuple[Any, Cursor]:
        """Return the next rows for the collator, at most `count`, and the cursor behind them.

        The rows have `epochs`, the passes over the data up to and including them, as a fraction.
        """

    def next_pass(self, cursor: Cursor) -> Cursor:
        """Return the cursor at the beginning of the next pass."""


class RowCollator(Protocol):
    """Makes step batches; `batches.Collator` is one."""

    def collate(self, rows: Any, step: int) -> StepBatch:
        """Return the batch of step `step`, which keys dropout."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the budget at one sequence length.

    Attributes:
        until: Progress at which it ends; the last phase's is 1.
        stream: The order of instances at this length.
        collator: Makes step batches of them.
    """

    until: float
    stream: Source
    collator: RowCollator


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands between two steps: with the weights and moments, all that a checkpoint needs.

    Attributes:
        spent: What has been spent.
        phase: Number of the phase that the cursor belongs to.
        cursor: Where the data stands.
        epochs: Passes over the data, as a fraction (of the first source).
    """

    spent: Spent
    phase: int
    cursor: Cursor
    epochs: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        spent = self.spent
        return {
            "spent": {
                "steps": spent.steps,
                "tokens": spent.tokens,
                "seconds": spent.seconds,
                "flops": spent.flops,
            },
            "phase": self.phase,
            "cursor": self.cursor.to_json(),
            "epochs": self.epochs,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Position":
        """Read what `to_json` wrote."""
        return cls(Spent(**data["spent"]), data["phase"], Cursor.from_json(data["cursor"]), data["epochs"])


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step, in numbers.

    Attributes:
        position: Where the run stands after the step.
        result: Loss, accuracies, gradient norm.
        learning_rate: Used in this step.
        progress: Share of the budget spent after the step.
        batch: Counts of the step (targets, tokens, sequences, slots).
        flops: Training operations of the step by the documented formula.
        seconds: Wall clock of the step, waiting included.
        waited: Seconds of it spent waiting for data, the device idle.
    """

    position: Position
    result: StepResult
    learning_rate: float
    progress: float
    batch: StepBatch
    flops: float
    seconds: float
    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How the learning rate moves and how large a step is.

    Attributes:
        shape, peak, warmup_share: See `schedule.rate_factor`.
        batch_sequences: Sequences in a step.
        clip_norm: Gradient norm limit; 0 is off.
    """

    shape: Shape
    peak: float
    warmup_share: float
    batch_sequences: int
    clip_norm: float


def train(
    model: TrainedModel,
    optimizer: Optimizer,
    phases: Sequence[Phase],
    position: Position,
    *,
    budget: Budget,
    schedule: Schedule,
    flops_of: Callable[[StepBatch], float],
    autocast: torch.dtype | None = None,
) -> Iterator[StepReport]:
    """Train until the budget is spent, yielding a report after each step.

    The next step's batch is made by one thread while the current one computes; since batches are functions of their
    cursor, what was prepared ahead is simply dropped when the loop is left. A GPU is sent the next step's gradients
    before this step's numbers are read: weights and moments are those after the reported step all the same.

    Args:
        model: In training mode, on its device.
        optimizer: Over the model's parameters, at `position`.
        phases: In order.
        position: Where to go on.
        budget: When to stop.
        schedule: Learning rate and step size.
        flops_of: Training operations of a step.
        autocast: Compute type of matrix products, None for fp32.
    """
    started = time.perf_counter() - position.spent.seconds
    # Where the device itself refuses what is unsound, the host need not look before it sends the next step's work.
    goes_ahead = refuses_later(next(model.parameters()).device, optimizer)
    upcoming: tuple[Gradients, Cursor, float] | None = None

    def gradients_of(made: tuple[StepBatch, Cursor, float], step: int) -> tuple[Gradients, Cursor, float]:
        batch, cursor, epochs = made
        return Gradients(model, optimizer, batch, step=step, autocast=autocast), cursor, epochs

    def forget() -> None:
        if upcoming is not None:
            upcoming[0].drop()

    def submit(phase: Phase, cursor: Cursor, step: int) -> Future[tuple[StepBatch, Cursor, float]]:
        return maker.submit(_make, model, phase, cursor, schedule.batch_sequences, step)

    with ThreadPoolExecutor(1, thread_name_prefix="batches") as maker, contextlib.ExitStack() as at_end:
        at_end.callback(forget)
        ahead: Future[tuple[StepBatch, Cursor, float]] | None = None
        while (progress := budget.progress(position.spent)) < 1:
            begun, waited = time.perf_counter(), 0.0
            while progress >= phases[position.phase].until:
                number = position.phase + 1
                before, after = phases[position.phase].stream, phases[number].stream
                # Other masks over the same sequences go on where they are; another length begins a pass.
                cursor = position.cursor if after is before else after.next_pass(position.cursor)
                position = replace(position, phase=number, cursor=cursor)
                forget()
                ahead = upcoming = None
            phase, step = phases[position.phase], position.spent.steps
            if upcoming is None:
                if ahead is None:
                    ahead = submit(phase, position.cursor, step)
                made = ahead.result()
                waited = time.perf_counter() - begun
                ahead = submit(phase, made[1], step + 1)
                upcoming = gradients_of(made, step)
            (gradients, cursor, epochs), upcoming = upcoming, None
            learning_rate = schedule.peak * rate_factor(schedule.shape, progress, schedule.warmup_share)
            update = gradients.update(learning_rate=learning_rate, clip_norm=schedule.clip_norm)
            # After the last step, and before another length, these gradients are dropped: one pass in vain.
            if goes_ahead and ahead is not None:
                waits_since = time.perf_counter()
                made = ahead.result()
                if update.is_done:  # Else the device had something to do.
                    waited += time.perf_counter() - waits_since
                if any(made[0].counts.values()):  # Else it is said when it is its turn.
                    ahead = submit(phase, made[1], step + 2)
                    upcoming = gradients_of(made, step + 1)
            result = update.result()
            batch, flops = gradients.batch, flops_of(gradients.batch)
            now = time.perf_counter()
            spent = Spent(
                steps=step + 1,
                tokens=position.spent.tokens + batch.num_tokens,
                seconds=now - started,
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
                seconds=now - begun,
                waited=waited,
            )


def _make(model: TrainedModel, phase: Phase, cursor: Cursor, count: int, step: int) -> tuple[StepBatch, Cursor, float]:
    rows, after = phase.stream.read(cursor, count)
    return model.placed(phase.collator.collate(rows, step)), after, rows.epochs
