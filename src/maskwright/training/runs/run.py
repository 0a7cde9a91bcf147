"""A training run: steps and, between them, logging, evaluations, checkpoints and stops. It resumes where it stopped."""

import contextlib
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from torch import Tensor

from maskwright.core.errors import CheckpointError
from maskwright.fitting.budget import Budget, Spent
from maskwright.machine.contention import SpinControl
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import TrackedRun, Trackers, status_at_end
from maskwright.training.ranks.device import Machine
from maskwright.training.ranks.distributed import all_gather_object, on_rank_zero, rank, world_size
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs import checkpoint
from maskwright.training.runs.checkpoint import CheckpointTimer, TrainingState
from maskwright.training.runs.metrics import MetricsLogger
from maskwright.training.runs.monitor import StepMonitor
from maskwright.training.runs.run_directory import METRICS, TIMING
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.loop import STALL_SECONDS, Phase, Position, Schedule, StepReport, train
from maskwright.training.steps.optimizer import Optimizer
from maskwright.training.steps.step import TrainedModel

ModelType = TypeVar("ModelType", bound=TrainedModel)


class Run(ABC, Generic[ModelType]):
    """A model in training, with its optimizer, data and files: metrics.jsonl and checkpoints/ in its folder.

    `PretrainingRun` and `SeedRun`, a fine-tuning, say how it is evaluated and what else is saved. Weights and moments
    are those of `position`.

    Args:
        model: On its device, in training mode.
        title: Begins messages and progress lines.
        trackers: Names of trackers (`choose_trackers`), which show the run by its `name` with its `settings`.
    """

    saves_when_finished = True
    """Whether a finished run has a checkpoint of its last step."""
    peak_flops: float | None = None
    """Of all ranks, as for `MetricsLogger`."""

    def __init__(
        self,
        *,
        folder: Path,
        model: ModelType,
        optimizer: Optimizer,
        phases: Sequence[Phase],
        budget: Budget,
        schedule: Schedule,
        machine: Machine,
        reporter: Reporter,
        title: str = "",
        trackers: Sequence[str] = (),
        name: str = "",
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self.model, self.optimizer, self.phases = folder, model, optimizer, phases
        self.budget, self.schedule, self.machine = budget, schedule, machine
        self.reporter, self.title = reporter, title
        self._trackers, self._tracked = trackers, TrackedRun(folder=folder, name=name, settings=settings)
        self.position = Position(Spent(), 0, phases[0].sampler.start())
        self.was_resumed = self._is_contended = False
        self.logger: MetricsLogger | None = None
        """Of this session, on rank 0, once training has begun."""

    @property
    def progress(self) -> float:
        """Share of the budget spent."""
        return self.budget.progress(self.position.spent)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.progress >= 1

    @abstractmethod
    def evaluate(self, report: StepReport, progress_before: float) -> None:
        """Evaluate after a step, where that is due; every rank calls it after every step, before a checkpoint."""

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights of a checkpoint."""

    @abstractmethod
    def load_weights(self, saved: TrainingState) -> None:
        """Replace all weights by those of a checkpoint."""

    def flops(self, batch: StepBatch) -> float:
        """Return the training FLOPs of a step by the documented formula; 0 if they are not counted."""
        return 0.0

    def skipped_flops(self, batch: StepBatch) -> float:
        """Return those FLOPs that the step did not compute."""
        return 0.0

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint, beside weights and moments."""
        return self.position.to_json()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Read what `state` returned; raises KeyError, TypeError or ValueError if it does not fit."""
        self.position = Position.from_json(dict(state))

    def copies(self) -> dict[str, bytes]:
        """Return the content of the files that a checkpoint has copies of, by name."""
        paths = (self.folder / name for name in (METRICS, TIMING))
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def resume(self) -> None:
        """Load the newest intact checkpoint on every rank, if there is one.

        Raises CheckpointError if there are checkpoints and none is intact, or it does not fit.
        """
        if (state := on_rank_zero(self._load_checkpoint)) is not None:
            self.was_resumed = True
            self.load_state(state)
        checkpoint.broadcast_loaded(self.position.spent.steps, self.weights(), self.optimizer)

    def read_checkpoint(self) -> TrainingState | None:
        """Return the newest intact checkpoint."""
        saved, damaged = checkpoint.latest(self.folder / "checkpoints")
        for line in damaged:
            self.reporter.message("warning", f"{line}; using the previous checkpoint")
        return saved

    def _load_checkpoint(self) -> dict[str, Any] | None:
        if (saved := self.read_checkpoint()) is None:
            return None
        try:
            self.load_state(saved.state)
            self.load_weights(saved)
            self.optimizer.load_state(saved.moments, saved.step)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{saved.folder} does not fit this version: {error}",
                hint=f"Remove {self.folder} to train from the start.",
            ) from error
        for name in (METRICS, TIMING):
            saved.restore(self.folder / name)
        where = f"step {saved.step:,}, {self.progress:.0%} of the budget spent"
        self.reporter.message("resuming", f"{self.title} from {where}".lstrip())
        return saved.state

    def train_steps(self, stop: StopRequest, checkpoint_seconds: float) -> bool:
        """Train until the run is finished or a stop is requested, and save; return whether it is finished.

        Raises DeviceError if the disk is full, TrainingError if a loss is not finite; the last checkpoint stays intact.
        """
        last_saved = self.position.spent.steps if self.was_resumed else -1
        timer = CheckpointTimer(self.save, last_saved, self.position.spent.seconds, checkpoint_seconds)
        with contextlib.ExitStack() as at_end:
            monitor = StepMonitor(all_gather_object(platform.node()), self.reporter)
            if rank() == 0:
                steps = self.position.spent.steps
                logger = self.logger = MetricsLogger(
                    self.folder,
                    steps,
                    self.budget,
                    self.reporter,
                    Trackers(self._trackers, replace(self._tracked, last_step=steps), self.reporter),
                    title=self.title,
                    peak_flops=self.peak_flops,
                    skipped_flops=self.skipped_flops,
                )
                at_end.push(lambda error, *_: logger.close(status_at_end(error, self.is_finished)))
            for report in self.reports(stop, self.optimizer, self.budget, self.schedule):
                progress_before, self.position = self.progress, report.position
                if self.logger is not None:
                    self.logger.step(report)
                monitor.step(report)
                self.evaluate(report, progress_before)
                if stop.agree() or self.is_finished:
                    break
                if timer.is_due(self.position.spent.seconds):
                    timer.save_step(self.position.spent)
            if self.saves_when_finished or not self.is_finished:
                timer.save_step(self.position.spent)
        return self.is_finished

    def reports(
        self, stop: StopRequest, optimizer: Optimizer, budget: Budget, schedule: Schedule
    ) -> Iterator[StepReport]:
        """Train from the position on, and nothing else, yielding a report after each step.

        On a CPU the load of the machine is checked after each step (`SpinControl`), and reported once.
        """
        reports = train(
            self.model,
            optimizer,
            self.phases,
            self.position,
            budget=budget,
            schedule=schedule,
            flops_of=self.flops,
            autocast=self.machine.autocast,
            gradient_dtype=self.machine.gradient_dtype,
            running=stop.running,
            on_stall=self._report_stall,
        )
        if self.machine.device.type != "cpu" or world_size() > 1:  # The other ranks keep the cores busy too.
            yield from reports
            return
        with contextlib.closing(SpinControl()) as spin_control:
            for report in reports:
                if spin_control.check() and not self._is_contended:
                    self._is_contended = True
                    self.reporter.message("load", "other processes use the CPU; training is slower than alone")
                yield report

    def save(self) -> None:
        """Write a checkpoint to resume from, on rank 0."""
        self.write_checkpoint(self.folder / "checkpoints")

    def write_checkpoint(self, checkpoints: Path) -> None:
        """Write a checkpoint into a folder of checkpoints, on rank 0."""
        assert self.logger is not None, "rank 0 has one in training"
        self.logger.sync()
        checkpoint.save(
            checkpoints, self.position.spent.steps, self.state(), self.weights(), self.optimizer.state(), self.copies()
        )

    def _report_stall(self, step: int) -> None:
        text = f"after step {step:,}: no batch for {STALL_SECONDS:.0f} s; is the cache's disk slow?"
        if rank():  # Other reporters than rank 0's are silent.
            os.write(2, f"process {rank()}: {text}\n".encode())
        self.reporter.message("waiting", text)
