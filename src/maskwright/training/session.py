"""One sitting of a run: build the model, go on where the last checkpoint stands, train, measure, keep."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from maskwright.core.errors import CheckpointError
from maskwright.kernels.setting import use_native_kernels
from maskwright.recipes.recipe import Recipe
from maskwright.training import checkpoint
from maskwright.training.budget import Budget, Spent
from maskwright.training.checkpoint import CheckpointTimer, save_models
from maskwright.training.compiling import compile_model, uses_native_kernels
from maskwright.training.device import Machine
from maskwright.training.evaluation import Baseline, Measured, detection_line, health_line, measure, unigram_baseline
from maskwright.training.flops import step_flops
from maskwright.training.initialization import Start
from maskwright.training.interrupt import StopRequest
from maskwright.training.loop import Position, Schedule, StepReport, train
from maskwright.training.metrics import Journal
from maskwright.training.model import build_model
from maskwright.training.optimizer import Optimizer
from maskwright.training.reporting import Reporter
from maskwright.training.run_directory import RunDirectory
from maskwright.training.teacher import TeacherModel
from maskwright.training.workload import Text, Workload, build_workload

EVALUATIONS = 20
"""Held-out measurements of a run, evenly over its budget."""
_SEQUENCES_OF_PROOF = 8
_HELD_OUT_SHARE = 0.005
_HELD_OUT_LEAST, _HELD_OUT_MOST = 5_000, 60_000


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a sitting ended.

    Attributes:
        spent: What the run has spent, over all sittings.
        epochs: Passes over the training text.
        finished: Whether the budget is spent.
        held_out: The last measurement, by objective; empty if nothing was held out.
        baseline: Guessing by frequency at the same targets.
    """

    spent: Spent
    epochs: float
    finished: bool
    held_out: dict[str, Measured]
    baseline: Baseline | None


class Session:
    """Holds what a sitting works with; `run` is the sitting.

    Args:
        folder: The run's folder, opened.
        recipe: What is trained.
        text: Prepared text.
        budget: When to stop.
        seed: Keys every random choice.
        machine: Device and precision.
        expected_tokens: Tokens the whole run will read, roughly; sizes the held-out text.
        talk: Where to report.
        teacher: The recipe's teacher, loaded.
        start: Weights to begin with instead of random ones; a checkpoint's come before them.
        tokens_per_microbatch: Slots of a forward and backward pass, on which dropout depends.
        compiles: Whether our own kernels compute on a GPU, if that is proven to give the same (`compile_model`).
    """

    def __init__(
        self,
        *,
        folder: RunDirectory,
        recipe: Recipe,
        text: Text,
        budget: Budget,
        seed: int,
        machine: Machine,
        expected_tokens: float,
        talk: Reporter,
        teacher: TeacherModel | None = None,
        start: Start | None = None,
        tokens_per_microbatch: int,
        compiles: bool = False,
    ) -> None:
        self.compiles = compiles
        self.folder, self.recipe, self.text, self.talk = folder, recipe, text, talk
        self.budget, self.machine = budget, machine
        aside = int(min(max(_HELD_OUT_SHARE * expected_tokens, _HELD_OUT_LEAST), _HELD_OUT_MOST))
        self.workload: Workload = build_workload(
            recipe,
            text,
            seed=seed,
            held_out_tokens=aside,
            tokens_per_microbatch=tokens_per_microbatch,
        )
        if not self.workload.held_out:
            talk.say("warning", "the text is too small to hold any of it out: there will be no held-out loss")
        self.baseline = unigram_baseline(self.workload.held_out, text.vocabulary.token_counts)
        self.teacher = None if teacher is None else teacher.to(machine.device)
        self.model = build_model(recipe, text.vocab_size, self.teacher)
        self.model.initialize(seed, text.vocabulary.token_counts)
        if start is not None:
            start.put_into(self.model)
        self.model.to(machine.device).train()
        self._progress_before = 0.0
        self.optimizer = Optimizer(self.model.named_parameters(), recipe.training.optimizer)

    def run(self, stop: StopRequest, checkpoint_seconds: float) -> SessionEnd:
        """Train until the budget is spent or a stop is asked for; the model is kept either way.

        Args:
            stop: Becomes true when the user asks to stop.
            checkpoint_seconds: Time between checkpoints.

        Raises:
            TrainingError: If the loss is not finite; the last checkpoint is sound.
            DeviceError: If the disk is full; the last checkpoint is sound.
        """
        position, kept = self._resume()
        with contextlib.ExitStack() as stack:
            if self.compiles:
                self.talk.say("compiled", self._compile())
                if not uses_native_kernels(self.model):
                    stack.enter_context(use_native_kernels(False))
            return self._sit(position, kept, stop, checkpoint_seconds)

    def _sit(self, position: Position, kept: bool, stop: StopRequest, checkpoint_seconds: float) -> SessionEnd:
        journal = Journal(self.folder.path, position.spent.steps, self.budget, self.machine.peak_flops, self.talk)
        keeper = CheckpointTimer(
            lambda: self._save(position, journal), position.spent.steps if kept else -1, checkpoint_seconds
        )
        held_out: dict[str, Measured] = {}
        try:
            for report in self._reports(position):
                position = report.position
                journal.step(report)
                if self._measure_now(report):
                    held_out = measure(self.model, self.workload.held_out)
                    journal.held_out(position.spent.steps, held_out, self.baseline)
                if stop or keeper.is_due():
                    keeper.keep(position.spent.steps)
                if stop:
                    break
            keeper.keep(position.spent.steps)
            self.talk.say("speed", journal.speed_line())
        finally:
            journal.close()
        if not held_out:
            held_out = measure(self.model, self.workload.held_out)
        if "mlm" in held_out and self.baseline is not None:
            whose = "" if self.recipe.generator is None else "generator: "
            self.talk.say("health", whose + health_line(held_out["mlm"], self.baseline, self.text.vocab_size))
        if "rtd" in held_out:
            self.talk.say("health", "detection: " + detection_line(held_out["rtd"]))
        finished = self.budget.progress(position.spent) >= 1
        return SessionEnd(position.spent, position.epochs, finished, held_out, self.baseline)

    def _compile(self) -> str:
        # Sequences of every length that the run will meet: what computes them differs.
        told = ""
        for phase in {each.collator.row_length: each for each in self.workload.phases}.values():
            rows, _ = phase.stream.read(phase.stream.start(), _SEQUENCES_OF_PROOF)
            told = compile_model(self.model, phase.collator.collate(rows, 0), self.machine.autocast)
            if not uses_native_kernels(self.model):
                break
        return told

    def _reports(self, position: Position) -> Iterator[StepReport]:
        training = self.recipe.training
        return train(
            self.model,
            self.optimizer,
            self.workload.phases,
            position,
            budget=self.budget,
            schedule=Schedule(
                shape=training.schedule,
                peak=training.learning_rate,
                warmup_share=training.warmup_steps / training.steps,
                batch_sequences=training.batch_sequences,
                clip_norm=training.clip_norm,
            ),
            flops_of=lambda batch: step_flops(
                self.recipe, self.text.vocab_size, batch, None if self.teacher is None else self.teacher.config
            ),
            autocast=self.machine.autocast,
        )

    def _measure_now(self, report: StepReport) -> bool:
        """Whether this step crossed one of the evenly spaced marks: a function of progress, not of the clock."""
        before = self._progress_before
        self._progress_before = report.progress
        return bool(self.workload.held_out) and int(report.progress * EVALUATIONS) > int(before * EVALUATIONS)

    def _resume(self) -> tuple[Position, bool]:
        found, damaged = checkpoint.latest(self.folder.checkpoints)
        for line in damaged:
            self.talk.say("warning", f"{line}; going on from the one before")
        start = Position(Spent(), 0, self.workload.phases[0].stream.start())
        if found is None:
            return start, False
        try:
            position = Position.from_json(found.state)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{found.folder / 'state.json'} does not fit this version: {error}") from error
        self.model.load(found.weights, str(found.folder))
        self.optimizer.load_state(found.moments, found.step)
        self._progress_before = self.budget.progress(position.spent)
        self.talk.say("resume", f"step {found.step:,}, {self._progress_before:.0%} of the budget spent")
        return position, True

    def _save(self, position: Position, journal: Journal) -> None:
        # The models first: where a checkpoint says that a step is done, its models are there.
        save_models(self.folder.path, self.recipe, self.model, self.text.vocabulary.special_tokens)
        journal.sync()
        checkpoint.save(
            self.folder.checkpoints,
            position.spent.steps,
            position.to_json(),
            self.model.weights(),
            self.optimizer.state(),
        )
