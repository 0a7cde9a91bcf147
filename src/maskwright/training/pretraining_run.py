"""A pretraining run: its model, text and schedule, held-out evaluations, kept models and saved models."""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maskwright.checkpoints.checkpoint import EncoderWithHeads
from maskwright.core.errors import RecipeError, TrainingError
from maskwright.core.storage.files import atomic_folder, write_json
from maskwright.core.text.amounts import pluralize, short_count
from maskwright.data.shards.corpus import sample_sentences
from maskwright.data.words.word_vectors import TOKEN_VECTOR_SAMPLE, token_vectors
from maskwright.fitting.budget import Spent
from maskwright.fitting.flops import EVALUATIONS, held_out_tokens
from maskwright.kernels.setting import use_kernels
from maskwright.reporting.reporter import Reporter
from maskwright.training.extension import stable_until
from maskwright.training.ranks.device import Machine, pretraining_microbatch
from maskwright.training.ranks.distributed import (
    all_reduce_max,
    broadcast_object,
    microbatch_multiple,
    on_rank_zero,
    rank,
    world_size,
)
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs.checkpoint import TrainingState, save_models, save_tokenizer, step_name
from maskwright.training.runs.monitor import PlanMonitor
from maskwright.training.runs.report import sample_fills
from maskwright.training.runs.run import Run
from maskwright.training.runs.run_directory import RECORD, STABLE, RunDirectory
from maskwright.training.start.continuation import Quality, held_out_similarity, split_budget, train_head, verdict
from maskwright.training.start.existing import build_teacher
from maskwright.training.start.initialization import WORD_EMBEDDINGS, InitialWeights
from maskwright.training.start.preparation import PreparedRun, Request
from maskwright.training.start.projection import project_weights
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.evaluation import (
    Baseline,
    detection_line,
    divergence,
    health_line,
    majority_share,
    measure,
    pair_line,
    restoration_line,
    unigram_baseline,
    vector_line,
)
from maskwright.training.steps.kernel_check import check_phases
from maskwright.training.steps.loop import Schedule, StepReport
from maskwright.training.steps.model import PretrainingModel, build_model
from maskwright.training.steps.step import ObjectiveResult, total_loss
from maskwright.training.steps.update_rules import build_optimizer
from maskwright.training.steps.weights import all_weights, copy_weights, load_weights
from maskwright.training.steps.workload import Workload, build_workload, skipped_flops, step_flops

_PROJECTION_TOKENS = 16_384
"""At most so many tokens of text decide how a teacher's layers are projected."""
_ROUNDING = 1e-9
"""Of a share of the budget: 29 of 100 steps, times 100, are less than 29."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The state of a pretraining run, finished or not.

    Attributes:
        folder: The run directory; also a Hugging Face model directory.
        finished: Whether the budget is spent; if not, the same call resumes the run.
        steps: Optimizer steps done.
        tokens: Training tokens, padding not counted; with those of a new head that was trained alone.
        epochs: Epochs of the training text.
        seconds: Seconds inside the training loop, a new head's included.
        flops: Training FLOPs by the formula of `model.sizes`; a new head alone counts like the whole model.
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
    held_out: dict[str, ObjectiveResult]
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
    def from_json(cls, data: Mapping[str, Any], folder: Path) -> "RunResult":
        """Read what `to_json` wrote; the folder may have been moved since."""
        held_out = {kind: ObjectiveResult(**value) for kind, value in data["held_out"].items()}
        baseline = None if data["baseline"] is None else Baseline(**data["baseline"])
        return cls(**{**data, "folder": folder, "held_out": held_out, "baseline": baseline})


class PretrainingRun(Run[PretrainingModel]):
    """A run of `pretrain`.

    GPU kernels are used if they reproduce PyTorch's loss and gradients (`kernel_check.check_kernels`).

    Args:
        record: The content of run.json.
        keep: How many models are kept in the folder `kept`, at equal shares of the budget.
        on_saved: Called on rank 0 after each checkpoint, as a part of saving it.
    """

    def __init__(
        self,
        directory: RunDirectory,
        request: Request,
        prepared: PreparedRun,
        record: Mapping[str, Any],
        machine: Machine,
        reporter: Reporter,
        keep: int = 0,
        on_saved: Callable[[], None] = lambda: None,
        trackers: Sequence[str] = (),
    ) -> None:
        recipe, text = prepared.recipe, prepared.text
        self.directory, self.recipe, self.text = directory, recipe, text
        self.tokenizer, self.expected_tokens, self.record = prepared.tokenizer, prepared.expected_tokens, record
        self._head_budget, budget = split_budget(request.budget, recipe, record)
        self.expected_tokens *= budget.amount / request.budget.amount
        self._begins_with_model = bool(record.get("begun_with")) and prepared.teacher is None
        self._head = Spent(**record.get("head", {}))
        self._keep_count, self._on_saved = keep, on_saved
        self._first_loss = math.inf
        self._files: dict[str, bytes] = {}
        self._held_out: dict[str, ObjectiveResult] = {}
        self._measured_step = -1
        self.workload = self._build_workload(request, machine, reporter)
        if not self.workload.held_out:
            reporter.message("warning", "the corpus is too small for held-out text; no held-out loss will be reported")
        self.baseline = unigram_baseline(self.workload.held_out, text.vocabulary.token_counts)
        teacher = None if prepared.teacher is None else build_teacher(prepared.teacher, recipe).to(machine.device)
        self._teacher_config = None if teacher is None else teacher.encoder.config
        model = build_model(recipe, text.vocab_size, teacher)
        model.initialize(request.seed, text.vocabulary.token_counts, self._token_vectors(prepared.start, reporter))
        if prepared.start is not None:  # A checkpoint replaces these weights.
            copy_weights(prepared.start.weights, model)
            layers, begins = prepared.start.projected_layers, not any(directory.checkpoints.glob("step-*"))
            if teacher is not None and layers and begins and rank() == 0:
                self._project(teacher, layers, model)
        model.to(machine.device).train()
        self._before = Quality.from_json(record["before"]) if record.get("before") else None
        training = recipe.training
        super().__init__(
            folder=directory.path,
            model=model,
            optimizer=build_optimizer(model.named_parameters(), training.optimizer, peak=training.learning_rate),
            phases=self.workload.phases,
            budget=budget,
            schedule=Schedule(
                shape=training.schedule,
                peak=training.learning_rate,
                warmup_share=training.warmup_steps / training.steps,
                clip_norm=training.clip_norm,
                decay_share=training.decay_share,
            ),
            machine=machine,
            reporter=reporter,
            trackers=trackers,
            name=directory.path.absolute().name,
            settings=recipe.model_dump(mode="json"),
        )
        self.peak_flops = machine.peak_flops * world_size()
        self._plan = PlanMonitor(self.budget, self.expected_tokens, record.get("replanned_tokens"))

    def _build_workload(self, request: Request, machine: Machine, reporter: Reporter) -> Workload:
        """Return phases and held-out text; raises RecipeError if there are more processes than sequences of a step."""
        recipe, record = self.recipe, self.record
        if recipe.training.batch_sequences < world_size():
            raise RecipeError(
                f"{world_size()} processes share batches of {recipe.training.batch_sequences} sequences",
                hint="Start fewer processes, or set training.batch_sequences and use a new --out folder.",
            )
        # Dropout is keyed by micro-batch, so a resumed run keeps its size on the same kind of device.
        kind = str(record.get("machine", {}).get("device", "")).partition(":")[0]
        recorded = record.get("tokens_per_microbatch", 0) if kind == machine.device.type else 0
        return build_workload(
            recipe,
            self.text,
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

    def _token_vectors(self, start: InitialWeights | None, reporter: Reporter) -> NDArray[np.float32] | None:
        """Return token vectors for the initial embeddings on rank 0, whose weights `resume` sends to the others.

        None if the embeddings are random, loaded or in a checkpoint.
        """
        is_loaded = start is not None and WORD_EMBEDDINGS in start.weights
        if rank() or is_loaded or any(self.directory.checkpoints.glob("step-*")):
            return None
        if self.recipe.encoder.initial_embeddings == "random":
            return None
        sources = self.workload.sources
        tokens, ends = sample_sentences(sources, self.text.weights or (1.0,), self.text.gather, TOKEN_VECTOR_SAMPLE)
        stage = "learning token vectors (tokens)"
        reporter.stage(stage, 0, len(tokens.ids))
        vectors = token_vectors(tokens.ids, ends, self.text.vocab_size)
        reporter.stage(stage, len(tokens.ids), len(tokens.ids))
        return vectors

    def _project(self, teacher: EncoderWithHeads, layers: tuple[int, ...], model: PretrainingModel) -> None:
        """Write weights projected from a teacher's on the first sequences of the run; `resume` sends them to others."""
        phase = self.workload.phases[0]
        count = _PROJECTION_TOKENS // self.recipe.training.phases[0].max_length
        rows, _ = phase.sampler.read(phase.sampler.start(), max(1, count))
        batches = [each.batch for each in phase.collator.collate(rows, 0).micro_batches]
        weights = project_weights(self.recipe.encoder, teacher, layers, batches)
        copy_weights({name: weights[name] for name in weights.keys() & all_weights(model).keys()}, model)

    def run(self, stop: StopRequest, checkpoint_seconds: float) -> RunResult:
        """Train until the budget is spent or a stop is requested; the model is saved either way.

        Raises TrainingError if training diverges (`evaluation.py`), DeviceError if the disk is full; the last
        checkpoint stays intact in both cases.
        """
        self.resume()
        if rank() == 0:
            self._files = self.directory.files()
            # Under a budget of time other steps may follow than those before the interruption.
            for folder in self.directory.kept.glob("step-*"):
                if folder.name > step_name(self.position.spent.steps):
                    shutil.rmtree(folder)
            if self.was_resumed and self.is_finished:
                # It was finished, or killed when it was, and its models may be damaged.
                self._save_models()
        with self._checked_kernels():
            if not self.position.spent.steps:
                self._start_from_model(stop)
                first = measure(self.model, self.workload.held_out_sample())
                self._first_loss = total_loss(self.recipe.objectives, first)
            self._first_loss = broadcast_object(self._first_loss)
            self.train_steps(stop, checkpoint_seconds)
            if self.logger is not None:
                # Measured again: beside other processes the first peak may have been too low.
                self.reporter.message("speed", self.logger.speed_line(self.machine.measure_peak() * world_size()))
            if self._measured_step != self.position.spent.steps:
                self._held_out = measure(self.model, self.workload.held_out)
            if rank() == 0:
                self.directory.update_record(samples=sample_fills(self.model, self.workload.held_out, self.tokenizer))
        self._report_quality(self._held_out)
        quality = self._compare_with_initial()
        if self.is_finished:
            self._report_finished()
        spent, head = self.position.spent, self._head
        return RunResult(
            folder=self.folder,
            finished=self.is_finished,
            steps=spent.steps,
            tokens=spent.tokens + head.tokens,
            seconds=spent.seconds + head.seconds,
            flops=spent.flops + head.flops,
            epochs=self.position.epochs,
            held_out=self._held_out,
            baseline=self.baseline,
            fitted=self.record["fitted"],
            stopped_by=stop.signal,
            quality=quality,
        )

    def evaluate(self, report: StepReport, progress_before: float) -> None:
        """Correct the plan, measure the held-out text, keep models and the stable checkpoint, each where it is due."""
        spent, progress = report.position.spent, report.progress
        if self.budget.unit == "seconds" and (plans := self._plan.correct(spent, progress)) is not None:
            if rank() == 0:
                self.directory.update_record(replanned_tokens=plans[1])
            self.reporter.message(
                "plan",
                f"planned {short_count(plans[0])} tokens; at the measured speed {short_count(plans[1])} fit into "
                f"{self.budget}",
            )
        # Evaluations happen at fixed progress, not at fixed times.
        if self.workload.held_out and int(progress * EVALUATIONS) > int(progress_before * EVALUATIONS):
            self._held_out, self._measured_step = measure(self.model, self.workload.held_out), spent.steps
            if self.logger is not None:
                self.logger.held_out(spent.steps, self._held_out, self.baseline)
            self._check(spent.steps, self._held_out)
        kept, kept_before = (int(share * self._keep_count + _ROUNDING) for share in (progress, progress_before))
        if kept > kept_before:
            on_rank_zero(partial(self._keep, spent.steps))
        if progress_before < stable_until(self.recipe.training) <= progress:
            on_rank_zero(partial(self.write_checkpoint, self.folder / STABLE))

    def flops(self, batch: StepBatch) -> float:
        return step_flops(self.recipe, self.text.vocab_size, batch, self._teacher_config)

    def skipped_flops(self, batch: StepBatch) -> float:
        return skipped_flops(self.recipe, batch)

    def weights(self) -> Mapping[str, Tensor]:
        return all_weights(self.model)

    def load_weights(self, saved: TrainingState) -> None:
        load_weights(self.model, saved.weights, str(saved.folder))

    def state(self) -> dict[str, Any]:
        """Return the position, and the held-out loss before the first step."""
        return {**super().state(), "first_loss": self._first_loss}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._first_loss = float(state["first_loss"])

    def copies(self) -> dict[str, bytes]:
        """Return the content of all files that resuming needs, as they were written, not as they may be now."""
        return {**self._files, RECORD: self.directory.copied_record(), **super().copies()}

    def save(self) -> None:
        super().save()
        self._on_saved()

    def write_checkpoint(self, checkpoints: Path) -> None:
        """Save the models, then a checkpoint, on rank 0."""
        self._check_sample(self.position.spent.steps)
        # The models first: a checkpoint of a step implies that the models of that step are saved.
        self._save_models()
        super().write_checkpoint(checkpoints)

    def _start_from_model(self, stop: StopRequest) -> None:
        """Train a new head alone, and measure the initial model, if the run began with one."""
        if self._begins_with_model:
            if self._head_budget is not None:
                self._head = train_head(self, self._head_budget, self.recipe.training.optimizer, stop)
            self._before = self._quality(measure(self.model, self.workload.held_out), self._head.tokens)
            if rank() == 0:
                self.directory.update_record(before=self._before.to_json(), head=dataclasses.asdict(self._head))

    def _quality(self, held_out: dict[str, ObjectiveResult], head_tokens: int = 0) -> Quality:
        similarity = held_out_similarity(self.folder, self.model, self.text, self.workload)
        return Quality(held_out=held_out, similarity=similarity, head_tokens=head_tokens)

    def _compare_with_initial(self) -> dict[str, Any] | None:
        """Report and return the results before and after the training of an initial model; None without one."""
        if self._before is None:
            return None
        after = self._quality(self._held_out)
        for line in verdict(self._before, after):
            self.reporter.message("verdict", line)
        return {"before": self._before.to_json(), "after": after.to_json()}

    @contextlib.contextmanager
    def _checked_kernels(self) -> Iterator[None]:
        """Use no kernels while the block runs, if they are to be checked and fail on any rank."""
        is_checked = self.machine.needs_kernel_check
        if is_checked:
            check = check_phases(self.model, self.workload.phases, self.machine.autocast)
            self.reporter.message("kernels", check.message)
        with use_kernels(False) if is_checked and all_reduce_max(not check.passed) else contextlib.nullcontext():
            yield

    def _report_finished(self) -> None:
        spent = self.position.spent
        planned, trained = short_count(self.expected_tokens), short_count(spent.tokens)
        done = pluralize(spent.steps, "step")
        done += f" in {self.budget}" if self.budget.unit in ("seconds", "flops") else ""
        self.reporter.message("finished", f"{done}: trained on {trained} tokens, planned {planned}")
        longest = self.recipe.training.max_length
        longer, most = "", min(4 * longest, self.recipe.encoder.max_positions)
        if most > longest:
            longer = f"; for longer ones train with `--set 'training.phases=[{{max_length: {most}}}]'`"
        self.reporter.message("length", f"reads {longest} tokens, longer texts are truncated{longer}")

    def _report_quality(self, held_out: dict[str, ObjectiveResult]) -> None:
        for kind, measured in held_out.items():
            if kind == "mlm" and self.baseline is not None:
                model = "" if self.recipe.generator is None else "generator: "
                self.reporter.message("health", model + health_line(measured, self.baseline, self.text.vocab_size))
            elif kind == "rtd":
                self.reporter.message("health", "discriminator: " + detection_line(measured))
            elif kind == "replace_mlm":
                self.reporter.message("health", "encoder: " + restoration_line(measured))
            elif kind == "sentence_vectors":
                self.reporter.message("health", vector_line(measured))
            elif any(each.kind == kind and each.classes for each in self.recipe.objectives):
                majority = majority_share(self.workload.held_out, kind)
                self.reporter.message("health", pair_line(kind, measured, majority))

    def _check(self, step: int, held_out: Mapping[str, ObjectiveResult]) -> None:
        """Raise TrainingError if the run has diverged."""
        baseline = 0.0 if self.baseline is None else self.baseline.loss
        loss, weights = total_loss(self.recipe.objectives, held_out), all_weights(self.model).values()
        if problem := divergence(loss, self._first_loss, baseline, weights):
            kept = max(self.directory.checkpoints.glob("step-*"), default=None)
            raise TrainingError(
                f"training has diverged: after step {step:,} {problem}; "
                + ("no checkpoint was written before" if kept is None else f"the checkpoint {kept.name} is kept"),
                hint="Lower the learning rate (`--set training.learning_rate=...`) and use a new --out folder.",
            )

    def _keep(self, step: int) -> None:
        """Save the models with what loading them needs: not to resume from, and never deleted."""
        self._check_sample(step)
        with atomic_folder(self.directory.kept / step_name(step)) as folder:
            save_models(folder, self.recipe, self.model, self.text.vocabulary.special_tokens)
            write_json(folder / "recipe.json", self.recipe.model_dump(mode="json"))
            save_tokenizer(folder, self.recipe, self.tokenizer)

    def _check_sample(self, step: int) -> None:
        """Raise TrainingError if a few sequences show that the run has diverged, whose weights are then not saved."""
        # The step's own loss was that of the weights before.
        self._check(step, measure(self.model, self.workload.held_out_sample()))

    def _save_models(self) -> None:
        save_models(self.directory.path, self.recipe, self.model, self.text.vocabulary.special_tokens)
