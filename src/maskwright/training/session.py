"""A training session: build the model, load the last checkpoint, train, evaluate, save.

A run has one session; each time it is interrupted and resumed, one more.
"""

import contextlib
import dataclasses
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.checkpoints.locating import GENERATOR
from maskwright.checkpoints.sentence_folder import MODULES, read_sentence_modules
from maskwright.core.amounts import pluralize, short_count
from maskwright.core.errors import CheckpointError, RecipeError, TrainingError
from maskwright.core.files import atomic_folder, write_json
from maskwright.fitting.budget import Budget, Spent
from maskwright.fitting.flops import EVALUATIONS, held_out_tokens, skipped_flops, step_flops
from maskwright.kernels.setting import use_kernels
from maskwright.training import checkpoint
from maskwright.training.checkpoint import CheckpointTimer, save_models, step_name
from maskwright.training.contention import SlowRanks
from maskwright.training.continuation import (
    HEAD_LEARNING_RATE,
    Quality,
    has_new_head,
    sentence_similarity,
    split_budget,
    verdict,
)
from maskwright.training.device import Machine, pretraining_microbatch
from maskwright.training.distributed import (
    all_gather_object,
    all_reduce_max,
    broadcast_object,
    microbatch_multiple,
    on_rank_zero,
    rank,
    single_process,
    world_size,
)
from maskwright.training.evaluation import (
    Baseline,
    HeldOutResult,
    Spikes,
    detection_line,
    divergence,
    health_line,
    majority_share,
    measure,
    pair_line,
    restoration_line,
    unigram_baseline,
)
from maskwright.training.existing import build_teacher
from maskwright.training.extension import stable_until
from maskwright.training.interrupt import StopRequest
from maskwright.training.kernel_check import KernelCheck, check_kernels
from maskwright.training.loop import STALL_SECONDS, Position, Schedule, StepReport, train
from maskwright.training.metrics import MetricsLogger
from maskwright.training.model import build_model
from maskwright.training.optimizer import Optimizer
from maskwright.training.preparation import Prepared, Request
from maskwright.training.report import sample_fills
from maskwright.training.reporting import Reporter
from maskwright.training.run_directory import METRICS, RECORD, STABLE, RunDirectory
from maskwright.training.workload import build_workload

_CHECKED_SEQUENCES = 8
_ROUNDING = 1e-9
"""Of a share of the budget: 29 of 100 steps, times 100, are less than 29."""
_REPLAN_FROM, _REPLAN_FACTOR, _REPLAN_AGAIN_FACTOR = 0.05, 1.25, 2.0
"""Share of a time budget after which the plan is compared with the measured speed; ratio of both that is reported the
first time, and again."""
_WARMUP_STEPS, _REPLAN_STEPS = 3, 10
"""First steps of a session, which are slower and are left out of the measured speed; steps before the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The state of a run.

    Attributes:
        folder: The run directory; also a Hugging Face model directory.
        finished: Whether the budget is spent; if not, the same call resumes the run.
        steps: Optimizer steps done.
        tokens: Training tokens, padding not counted.
        epochs: Epochs of the training text.
        seconds: Seconds inside the training loop.
        flops: Training FLOPs by the formula of `model.sizes`.
        held_out: Loss and accuracy of each objective on held-out text, by kind.
        baseline: The unigram baseline there; None without held-out text.
        fitted: Fitted fields: field, published and chosen value, reason.
        stopped_by: The signal that interrupted the run, or that came while it finished, or None.
        quality: Held-out results before and after, of a run that began with a model (`continuation.Quality`).
    """

    folder: Path
    finished: bool
    steps: int
    tokens: int
    epochs: float
    seconds: float
    held_out: dict[str, HeldOutResult]
    baseline: Baseline | None
    fitted: list[dict[str, Any]]
    stopped_by: str | None
    flops: float = 0.0
    quality: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as `run.json` keeps it."""
        stopped_by = None if self.finished else self.stopped_by
        return {**dataclasses.asdict(self), "folder": str(self.folder), "stopped_by": stopped_by}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], folder: Path) -> "Run":
        """Read what `to_json` wrote; the folder may have been moved since."""
        held_out = {kind: HeldOutResult(**value) for kind, value in data["held_out"].items()}
        baseline = None if data["baseline"] is None else Baseline(**data["baseline"])
        return cls(**{**data, "folder": folder, "held_out": held_out, "baseline": baseline})


class RunMonitor:
    """Reports spikes, slow ranks, the load of the machine and, under a budget of time, a plan that proves wrong.

    Args:
        expected_tokens: The plan of the first session.
        record: The content of run.json, with the last correction of the plan ("replanned_tokens"), if there is one.
        hosts: The name of each rank's machine.
    """

    def __init__(
        self,
        directory: RunDirectory,
        budget: Budget,
        expected_tokens: float,
        record: Mapping[str, Any],
        hosts: Sequence[str],
        reporter: Reporter,
    ) -> None:
        self._directory, self._budget, self._reporter = directory, budget, reporter
        self._expected_tokens = expected_tokens
        self._planned_tokens = record.get("replanned_tokens") or expected_tokens
        self._spikes, self._num_spikes = Spikes(), 0
        self._is_contended = False
        self._hosts, self._slow_ranks = hosts, SlowRanks()
        self._num_steps = 0
        self._warmed_up: Spent | None = None

    def step(self, report: StepReport) -> None:
        """Take note of a step of this session."""
        self._num_steps += 1
        result, spent = report.result, report.position.spent
        for spike in self._spikes.find({"loss": result.loss, "gradient norm": result.gradient_norm}):
            self._num_spikes += 1
            if self._num_spikes.bit_count() == 1:  # the first, second, fourth, eighth ...
                where = f"step {spent.steps:,} ({report.batch.key})"
                self._reporter.message("spike", f"{where}: {spike}; number {self._num_spikes:,}")
        if self._budget.unit == "seconds":
            self._replan(spent, report.progress)
        if report.is_contended and not self._is_contended:
            self._is_contended = True
            self._reporter.message("load", "other processes use the CPU; training is slower than alone")
        if self._num_steps > _WARMUP_STEPS:
            for slow, seconds, ratio in self._slow_ranks.find(report.rank_seconds):
                self._reporter.message(
                    "slow",
                    f"rank {slow} on {self._hosts[slow]} takes {1000 * seconds:.3g} s per 1,000 tokens, "
                    f"{ratio:.1f} times the median of the ranks; all wait for it",
                )

    def _replan(self, spent: Spent, progress: float) -> None:
        if self._num_steps == _WARMUP_STEPS:
            self._warmed_up = spent
        if self._warmed_up is None or self._num_steps < _REPLAN_STEPS or not _REPLAN_FROM <= progress < 1:
            return
        speed = (spent.tokens - self._warmed_up.tokens) / (spent.seconds - self._warmed_up.seconds)
        tokens = spent.tokens + speed * (self._budget.amount - spent.seconds)
        factor = _REPLAN_FACTOR if self._planned_tokens == self._expected_tokens else _REPLAN_AGAIN_FACTOR
        if not 1 / factor <= tokens / self._planned_tokens <= factor:
            planned, self._planned_tokens = self._planned_tokens, tokens
            if rank() == 0:
                self._directory.update_record(replanned_tokens=tokens)
            self._reporter.message(
                "plan",
                f"planned {short_count(planned)} tokens; at the measured speed {short_count(tokens)} fit into "
                f"{self._budget}",
            )


class Session:
    """The model, optimizer and data of one training session.

    `record` is the content of run.json. GPU kernels are used if they reproduce PyTorch's loss and gradients
    (`kernel_check.check_kernels`).
    """

    def __init__(
        self,
        directory: RunDirectory,
        request: Request,
        prepared: Prepared,
        record: Mapping[str, Any],
        machine: Machine,
        reporter: Reporter,
    ) -> None:
        recipe, text = prepared.recipe, prepared.text
        self.directory, self.recipe, self.text, self.reporter = directory, recipe, text, reporter
        self.tokenizer = prepared.tokenizer
        self.budget, self.machine, self.record = request.budget, machine, record
        self.expected_tokens = prepared.expected_tokens
        self._head_budget: Budget | None = None
        if has_new_head(recipe, record.get("begun_with")) and not request.as_published:
            self._head_budget, self.budget = split_budget(request.budget)
            self.expected_tokens *= self.budget.amount / request.budget.amount
        self._begins_with_model = bool(record.get("begun_with")) and prepared.teacher is None
        self._before = Quality.from_json(record["before"]) if record.get("before") else None
        self._first_loss = math.inf
        self._files: dict[str, bytes] = {}
        smallest = min(sequences for _, sequences in recipe.training.batches)
        if smallest < world_size():
            raise RecipeError(
                f"{world_size()} processes share batches of {smallest} sequences",
                todo="Start fewer processes, or set training.batch_sequences and use a new --out folder.",
            )
        # Dropout is keyed by micro-batch, so a resumed run keeps its size on the same kind of device.
        kind = str(record.get("machine", {}).get("device", "")).partition(":")[0]
        recorded = record.get("tokens_per_microbatch", 0) if kind == machine.device.type else 0
        self.workload = build_workload(
            recipe,
            text,
            seed=request.seed,
            held_out_tokens=held_out_tokens(record.get("first_expected_tokens", self.expected_tokens)),
            tokens_per_microbatch=broadcast_object(recorded or pretraining_microbatch(machine, recipe)),
            ranks=microbatch_multiple(
                record["ranks"],
                dropout=bool(recipe.encoder.hidden_dropout or recipe.encoder.attention_dropout),
                reporter=reporter,
            ),
            device=machine.device,
        )
        if not self.workload.held_out:
            reporter.message("warning", "the corpus is too small for held-out text; no held-out loss will be reported")
        self.baseline = unigram_baseline(self.workload.held_out, text.vocabulary.token_counts)
        teacher = prepared.teacher
        self.teacher = None if teacher is None else build_teacher(teacher, recipe).to(machine.device)
        self.model = build_model(recipe, text.vocab_size, self.teacher)
        self.model.initialize(request.seed, text.vocabulary.token_counts)
        if prepared.start is not None:  # A checkpoint replaces these weights.
            prepared.start.copy_to(self.model)
        self.model.to(machine.device).train()
        self.optimizer = Optimizer(
            self.model.named_parameters(), recipe.training.optimizer, peak=recipe.training.learning_rate
        )

    def run(
        self, stop: StopRequest, checkpoint_seconds: float, keep: int = 0, on_saved: Callable[[], None] | None = None
    ) -> Run:
        """Train until the budget is spent or a stop is requested; the model is saved either way.

        Args:
            keep: How many models are kept in the folder `kept`, at equal shares of the budget.
            on_saved: Called on rank 0 after each checkpoint, as a part of saving it.

        Raises TrainingError if training diverges (`evaluation.py`), DeviceError if the disk is full; the last
        checkpoint stays intact in both cases.
        """
        position, is_saved = self._position()
        steps, progress = position.spent.steps, self.budget.progress(position.spent)
        if rank() == 0:
            self._files = self.directory.files()
            # Under a budget of time other steps may follow than those before the interruption.
            self._drop_kept_after(steps)
        held_out: dict[str, HeldOutResult] = {}
        with contextlib.ExitStack() as stack:
            if self.machine.needs_kernel_check:
                check = self._check_kernels()
                self.reporter.message("kernels", check.message)
                if all_reduce_max(not check.passed):
                    stack.enter_context(use_kernels(False))
            logger = None
            if rank() == 0:
                peak_flops = self.machine.peak_flops * world_size()
                logger = MetricsLogger(self.directory.path, steps, self.budget, peak_flops, self.reporter)
                stack.callback(logger.close)
            if not steps:
                self._before = self._begin(position, stop)
                self._first_loss = self._loss(measure(self.model, self.workload.held_out_sample()))
            self._first_loss = broadcast_object(self._first_loss)
            hosts = all_gather_object(platform.node())
            monitor = RunMonitor(self.directory, self.budget, self.expected_tokens, self.record, hosts, self.reporter)

            def save() -> None:
                if logger is not None:
                    self._save(position, logger)
                    if on_saved is not None:
                        on_saved()

            if logger is not None and is_saved and progress >= 1:
                # It was finished, or killed when it was, and its models may be damaged.
                self._save_models()
            timer = CheckpointTimer(save, steps if is_saved else -1, checkpoint_seconds)
            for report in self._steps(position, stop):
                position = report.position
                if logger is not None:
                    logger.step(report)
                monitor.step(report)
                # Evaluations happen at fixed progress, not at fixed times.
                if self.workload.held_out and int(report.progress * EVALUATIONS) > int(progress * EVALUATIONS):
                    held_out = measure(self.model, self.workload.held_out)
                    if logger is not None:
                        logger.held_out(position.spent.steps, held_out, self.baseline)
                    self._check(position.spent.steps, held_out)
                # Before a checkpoint, after which this step is not computed again.
                if rank() == 0 and int(report.progress * keep + _ROUNDING) > int(progress * keep + _ROUNDING):
                    self._keep(position.spent.steps)
                if logger is not None and progress < stable_until(self.recipe.training) <= report.progress:
                    self._save(position, logger, self.directory.path / STABLE)
                progress = report.progress
                if (stopping := stop.agree()) or timer.is_due():
                    timer.save_step(position.spent.steps)
                if stopping:
                    break
            timer.save_step(position.spent.steps)
            if logger is not None:
                self.reporter.message("speed", logger.speed_line())
            held_out = held_out or measure(self.model, self.workload.held_out)
            if rank() == 0:
                self.directory.update_record(samples=sample_fills(self.model, self.workload.held_out, self.tokenizer))
        self._report_quality(held_out)
        quality = None
        if self._before is not None:
            after = Quality(held_out=held_out, similarity=self._similarity())
            quality = {"before": self._before.to_json(), "after": after.to_json()}
            for line in verdict(self._before, after):
                self.reporter.message("verdict", line)
        if progress >= 1:
            planned, trained = short_count(self.expected_tokens), short_count(position.spent.tokens)
            done = pluralize(position.spent.steps, "step")
            done += f" in {self.budget}" if self.budget.unit in ("seconds", "flops") else ""
            self.reporter.message("finished", f"{done}: trained on {trained} tokens, planned {planned}")
            longest = self.recipe.training.max_length
            longer, most = "", min(4 * longest, self.recipe.encoder.max_positions)
            if most > longest:
                longer = f"; for longer ones train with `--set 'training.phases=[{{max_length: {most}}}]'`"
            self.reporter.message("length", f"reads {longest} tokens, longer texts are truncated{longer}")
        return Run(
            folder=self.directory.path,
            finished=progress >= 1,
            **dataclasses.asdict(position.spent),
            epochs=position.epochs,
            held_out=held_out,
            baseline=self.baseline,
            fitted=self.record["fitted"],
            stopped_by=stop.signal,
            quality=quality,
        )

    def _begin(self, position: Position, stop: StopRequest) -> Quality | None:
        """Train a new masked-token head alone, and measure the initial model; None if the run began with none."""
        if not self._begins_with_model:
            return None
        tokens = 0
        if self._head_budget is not None:
            heads = dict(self.model.heads.named_parameters(prefix="heads"))
            optimizer = Optimizer(heads.items(), self.recipe.training.optimizer, peak=HEAD_LEARNING_RATE)
            self.model.encoder.requires_grad_(False)
            for report in self._steps(position, stop, optimizer, self._head_budget, HEAD_LEARNING_RATE):
                tokens = report.position.spent.tokens
                if stop.agree():
                    break
            self.model.encoder.requires_grad_(True)
            self.reporter.message("head", f"new, trained alone on {short_count(tokens)} tokens; the encoder was frozen")
        held_out = measure(self.model, self.workload.held_out)
        before = Quality(held_out=held_out, similarity=self._similarity(), head_tokens=tokens)
        if rank() == 0:
            self.directory.update_record(before=before.to_json())
        return before

    def _similarity(self) -> float | None:
        """Measure the sentence vectors on held-out text; None for a model that makes none."""
        folder = self.directory.path
        if not (folder / MODULES).is_file():
            return None
        pooling = read_sentence_modules(folder).pooling
        return sentence_similarity(self.model.encoder, self.text, self.workload.held_out_documents, pooling)

    def _steps(
        self,
        position: Position,
        stop: StopRequest,
        optimizer: Optimizer | None = None,
        budget: Budget | None = None,
        peak: float = 0.0,
    ) -> Iterator[StepReport]:
        """Train with the run's optimizer, budget and peak learning rate, or with others."""
        training = self.recipe.training
        teacher_config = None if self.teacher is None else self.teacher.encoder.config
        return train(
            self.model,
            optimizer or self.optimizer,
            self.workload.phases,
            position,
            budget=budget or self.budget,
            schedule=Schedule(
                shape=training.schedule,
                peak=peak or training.learning_rate,
                warmup_share=training.warmup_steps / training.steps,
                clip_norm=training.clip_norm,
                decay_share=training.decay_share,
            ),
            flops_of=lambda batch: step_flops(self.recipe, self.text.vocab_size, batch, teacher_config),
            skipped_flops_of=partial(skipped_flops, self.recipe),
            autocast=self.machine.autocast,
            running=stop.running,
            on_stall=self._report_stall,
        )

    def _report_quality(self, held_out: dict[str, HeldOutResult]) -> None:
        for kind, measured in held_out.items():
            if kind == "mlm" and self.baseline is not None:
                model = "" if self.recipe.generator is None else "generator: "
                self.reporter.message("health", model + health_line(measured, self.baseline, self.text.vocab_size))
            elif kind == "rtd":
                self.reporter.message("health", "discriminator: " + detection_line(measured))
            elif kind == "replace_mlm":
                self.reporter.message("health", "encoder: " + restoration_line(measured))
            elif any(each.kind == kind and each.predicts == "sequence" for each in self.recipe.objectives):
                majority = majority_share(self.workload.held_out, kind)
                self.reporter.message("health", pair_line(kind, measured, majority))

    def _report_stall(self, step: int) -> None:
        text = f"after step {step:,}: no batch for {STALL_SECONDS:.0f} s; is the cache's disk slow?"
        if rank():  # Other reporters than rank 0's are silent.
            os.write(2, f"process {rank()}: {text}\n".encode())
        self.reporter.message("waiting", text)

    def _check_kernels(self) -> KernelCheck:
        # One batch per sequence length of the run, since the kernels differ by length.
        check = KernelCheck(False, "")
        for phase in {each.sampler: each for each in self.workload.phases}.values():
            rows, _ = phase.sampler.read(phase.sampler.start(), _CHECKED_SEQUENCES)
            check = check_kernels(self.model, phase.collator.collate(rows, 0), self.machine.autocast)
            if not check.passed:
                break
        return check

    def _position(self) -> tuple[Position, bool]:
        """Give every rank the weights and moments of rank 0's checkpoint, and return what `_resume` returned there."""
        found = on_rank_zero(self._resume)
        checkpoint.broadcast_loaded(found[0].spent.steps, self.model.weights(), self.optimizer)
        return found

    def _resume(self) -> tuple[Position, bool]:
        """Load the newest intact checkpoint. Returns the position, and whether there is one."""
        found, damaged = checkpoint.latest(self.directory.checkpoints)
        for line in damaged:
            self.reporter.message("warning", f"{line}; using the previous checkpoint")
        if found is None:
            return Position(Spent(), 0, self.workload.phases[0].sampler.start()), False
        try:
            position = Position.from_json(found.state)
            self._first_loss = float(found.state["first_loss"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{found.folder / 'state.json'} does not fit this version: {error}") from error
        self.model.load(found.weights, str(found.folder))
        self.optimizer.load_state(found.moments, found.step)
        found.restore(self.directory.path / METRICS)
        progress = self.budget.progress(position.spent)
        self.reporter.message("resuming", f"from step {found.step:,}, {progress:.0%} of the budget spent")
        return position, True

    def _check(self, step: int, held_out: Mapping[str, HeldOutResult]) -> None:
        """Raise TrainingError if the run has diverged."""
        baseline = 0.0 if self.baseline is None else self.baseline.loss
        if problem := divergence(self._loss(held_out), self._first_loss, baseline, self.model.weights().values()):
            kept = max(self.directory.checkpoints.glob("step-*"), default=None)
            raise TrainingError(
                f"training has diverged: after step {step:,} {problem}; "
                + ("no checkpoint was written before" if kept is None else f"the checkpoint {kept.name} is kept"),
                todo="Lower the learning rate (`--set training.learning_rate=...`) and use a new --out folder.",
            )

    def _loss(self, held_out: Mapping[str, HeldOutResult]) -> float:
        objectives = [each for each in self.model.objectives if each.kind in held_out]
        return float(sum(each.weight * held_out[each.kind].loss for each in objectives))

    def _drop_kept_after(self, step: int) -> None:
        for folder in self.directory.kept.glob("step-*"):
            if folder.name > step_name(step):
                shutil.rmtree(folder)

    def _keep(self, step: int) -> None:
        """Save the models with what loading them needs: not to resume from, and never deleted."""
        self._check_sample(step)
        with atomic_folder(self.directory.kept / step_name(step)) as folder:
            save_models(folder, self.recipe, self.model, self.text.vocabulary.special_tokens)
            write_json(folder / "recipe.json", self.recipe.model_dump(mode="json"))
            for place in (folder, folder / GENERATOR) if self.recipe.generator else (folder,):
                self.tokenizer.save(place, max_length=self.recipe.training.max_length)

    def _check_sample(self, step: int) -> None:
        """Raise TrainingError if a few sequences show that the run has diverged, whose weights are then not saved."""
        # The step's own loss was that of the weights before.
        with single_process():
            self._check(step, measure(self.model, self.workload.held_out_sample()))

    def _save(self, position: Position, logger: MetricsLogger, checkpoints: Path | None = None) -> None:
        self._check_sample(position.spent.steps)
        # The models first: a checkpoint of a step implies that the models of that step are saved.
        self._save_models()
        logger.sync()
        metrics = self.directory.path / METRICS
        checkpoint.save(
            checkpoints or self.directory.checkpoints,
            position.spent.steps,
            {**position.to_json(), "first_loss": self._first_loss},
            self.model.weights(),
            self.optimizer.state(),
            {
                **self._files,
                RECORD: self.directory.copied_record(),
                **({METRICS: metrics.read_bytes()} if metrics.is_file() else {}),
            },
        )

    def _save_models(self) -> None:
        save_models(self.directory.path, self.recipe, self.model, self.text.vocabulary.special_tokens)
