"""One training run of one seed, in its own directory: resumes where it stopped, ends with its best epoch's model.

run.json                  development metrics of each epoch, the best epoch; checksums of the other files
metrics.jsonl             loss, gradient norm, learning rate by step (a function of the seed)
checkpoints/, best/       to resume from, and the best epochs so far; removed when the run is finished
model/                    the best epoch's model, a Hugging Face folder
dev_predictions.jsonl     that model's predictions on the development examples
copies/                   the fine-tuning's run.json
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.amounts import pluralize
from maskwright.core.checksums import compare_files, file_checksums, read_record, write_record
from maskwright.core.errors import CheckpointError
from maskwright.core.files import atomic_path
from maskwright.finetuning.evaluate import score_features
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.features import FeatureCollator, Features, Layout, ShuffledUnits
from maskwright.finetuning.fine_tuned import FineTunedModel, reads_segments
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.predictions import write_predictions
from maskwright.finetuning.tasks.base import Task
from maskwright.fitting.budget import Budget, Spent
from maskwright.model.config import EncoderConfig
from maskwright.training import checkpoint
from maskwright.training.checkpoint import CheckpointTimer, TrainingState
from maskwright.training.device import Machine
from maskwright.training.distributed import on_rank_zero, rank
from maskwright.training.interrupt import StopRequest
from maskwright.training.loop import Phase, Position, Schedule, StepReport, train
from maskwright.training.metrics import JsonLines, worth_logging
from maskwright.training.optimizer import Optimizer
from maskwright.training.reporting import Reporter
from maskwright.training.run_directory import COPIES, METRICS, RECORD

MODEL = "model"
"""Sub-folder with the best epoch's model."""
_PREDICTIONS = "dev_predictions.jsonl"
_BEST = "best"
"""Sub-folder with a folder for each epoch that was the best when it ended, by its step, until the run is finished."""
_NOT_RESULTS = (RECORD, "checkpoints/*", f"{_BEST}/*", f"{COPIES}/*", "test*", ".*")
_METRICS_SHOWN = 4
_STEPS_BEFORE_ESTIMATE = 5
"""Steps before the time left is shown; the first ones are slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The features to train and to select models on, and the development examples."""

    train: Features
    dev: Features
    dev_examples: Sequence[Example]


def training_data(
    existing: Checkpoint, task: Task, settings: Hyperparameters, train: Sequence[Any], dev: Sequence[Any]
) -> TrainingData:
    """Return the features of the examples as the settings ask for them."""
    layout = Layout(existing.tokenizer, settings.max_length, reads_segments(existing.config, existing.tokenizer))
    learned = task.features(train, layout, training=True)
    if settings.double_unordered and (others := swapped(train)):
        # A pair that is cut is one example that is cut, in either order.
        learned = replace(task.features([*train, *others], layout, training=True), num_cut=learned.num_cut)
    return TrainingData(train=learned, dev=task.features(dev, layout, training=False), dev_examples=dev)


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Development metrics at the end of an epoch, the main one first."""

    step: int
    epoch: float
    metrics: Mapping[str, float]

    @property
    def main(self) -> float:
        """The main metric, higher is better; -inf if undefined (NaN)."""
        value = next(iter(self.metrics.values()))
        return -math.inf if math.isnan(value) else value


def best_of(history: Sequence[Measured]) -> int:
    """Return the index of the best measurement; of equal ones the last; -1 if there is none.

    Few development examples give many ties; weights trained longer, at a lower learning rate, depend less on chance.
    """
    return max(range(len(history)), key=lambda number: (history[number].main, number), default=-1)


def should_stop(history: Sequence[Measured], patience: int) -> bool:
    """Whether the last `patience` measurements were all worse than the best before them; 0 never stops."""
    return bool(patience and history) and len(history) - 1 - best_of(history) >= patience


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """A finished run.

    `history` are the development metrics of each epoch; `cut` is the number of truncated examples, by "train" and
    "dev".
    """

    seed: int
    folder: Path
    steps: int
    history: tuple[Measured, ...]
    cut: Mapping[str, int]

    @property
    def chosen(self) -> Measured:
        """Metrics of the weights that are kept."""
        return self.history[best_of(self.history)]

    def write(self) -> None:
        """Put the best epoch's model in place, write run.json (without the folder, which may be moved), and clean."""
        best = _best_folder(self.folder, self.chosen.step)
        for file in sorted(path for path in best.rglob("*") if path.is_file()):
            place = self.folder / file.relative_to(best)
            place.parent.mkdir(exist_ok=True)
            with atomic_path(place) as temporary:
                shutil.copyfile(file, temporary)
        data = {name: value for name, value in asdict(self).items() if name != "folder"}
        files = file_checksums(self.folder, without=_NOT_RESULTS)
        write_record(self.folder / RECORD, {**data, "files": files, "finished": True})
        self.clean()

    def clean(self) -> None:
        """Remove what only an unfinished run needs."""
        _remove_unfinished(self.folder)


def _remove_unfinished(folder: Path) -> None:
    for leftover in (folder / "checkpoints", folder / _BEST):
        shutil.rmtree(leftover, ignore_errors=True)


def _best_folder(folder: Path, step: int) -> Path:
    return folder / _BEST / f"step-{step}"


def read_result(folder: Path) -> SeedResult | None:
    """Return the result of a finished run, None if it is not finished; CheckpointError if one of its files is damaged.

    DeviceError if a file exists but cannot be read.
    """
    record = folder / RECORD
    if not record.exists():
        return None
    try:
        data = read_record(record)
        compare_files(folder, data.get("files", {}))
        history = tuple(Measured(**measured) for measured in data["history"])
        return SeedResult(seed=data["seed"], folder=folder, steps=data["steps"], history=history, cut=data["cut"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder} is damaged: {error}", todo=f"Remove {folder} and run the same command again to train it again."
        ) from error


def rate_share(name: str, config: EncoderConfig, decay: float) -> float:
    """Return the factor on the head's learning rate for a parameter, "encoder.*" or of the head.

    Layer-wise decay is ELECTRA's (Clark et al. 2020, appendix B; model/optimization.py:181-193). Each weight has a
    depth: embeddings 0, layer k has k + 1, the pooler (which ELECTRA lacks) L + 1, the head L + 2; its learning rate is
    the head's times decay^(L + 2 - depth). So the top layer learns at decay^2, not at decay.

    Example:
        >>> rate_share("encoder.ffn_blocks.11.dense_in.weight", EncoderConfig(num_layers=12), 0.8)
        0.64
    """
    part, _, rest = name.removeprefix("encoder.").partition(".")
    depth = 0
    if not name.startswith("encoder."):
        depth = config.num_layers + 2
    elif part == "pooler":
        depth = config.num_layers + 1
    elif part in ("attention_blocks", "ffn_blocks"):
        plan = config.layer_plan("attention" if part == "attention_blocks" else "ffn")
        # Of the layers that share a block the highest counts.
        depth = max(layer for layer, block in enumerate(plan) if block == int(rest.partition(".")[0])) + 1
    return float(decay ** (config.num_layers + 2 - depth))


@dataclass(kw_only=True)
class SeedRun:
    """A run with everything it needs.

    `model` is the encoder with a new head, on its device; `seed` keys data order and dropout; dropout masks depend on
    `tokens_per_microbatch` and `ranks` (of `FeatureCollator`).
    """

    folder: Path
    model: FineTunedModel
    data: TrainingData
    settings: Hyperparameters
    seed: int
    machine: Machine
    tokens_per_microbatch: int
    ranks: int
    reporter: Reporter

    def __post_init__(self) -> None:
        self.title = f"seed {self.seed}"
        config, decay = self.model.encoder.config, self.settings.layer_decay
        parameters = self.model.named_parameters()
        self.optimizer = Optimizer(parameters, self.settings.optimizer, lambda name: rate_share(name, config, decay))
        self.steps_per_epoch = self.settings.steps_of_epoch(self.data.train.num_units)
        self.total_steps = self.settings.total_steps(self.data.train.num_units)
        self._history: list[Measured] = []
        self._kept_best: tuple[int, ...] = ()
        self._best_files: dict[str, str] = {}

    def run(self, stop: StopRequest, checkpoint_seconds: float) -> bool:
        """Train until all epochs are done or early stopping applies; return False if `stop` became true before.

        If the loss is not finite or the disk is full, the last checkpoint is valid.
        """
        first, is_saved, self._history = on_rank_zero(self._resume)
        self._kept_best = (self._best_step(),)
        checkpoint.broadcast_loaded(first, self.model.state_dict(), self.optimizer)
        step, total, patience = first, self.total_steps, self.settings.patience
        metrics = JsonLines(self.folder / METRICS, step) if rank() == 0 else None
        timer = CheckpointTimer(lambda: self._save(step, metrics), first if is_saved else -1, checkpoint_seconds)
        self.model.train()
        loss: float | None = None
        try:
            for report in self._reports(step):
                loss = report.result.loss if loss is None else 0.95 * loss + 0.05 * report.result.loss
                step = report.position.spent.steps
                self._show_progress(report, loss, first)
                if metrics is not None and (worth_logging(step) or step == total):
                    metrics.write(_logged(report))
                if step % self.steps_per_epoch == 0 or step == total:
                    self._measure(step, metrics)
                if should_stop(self._history, patience) or stop.agree():
                    break
                if timer.is_due():
                    timer.save_step(step)
            stopped_early = step < total and should_stop(self._history, patience)
            if stopped_early:
                self.reporter.message(
                    "stopped", f"{self.title} early: no improvement in {pluralize(patience, 'epoch')}"
                )
            finished = step == total or stopped_early
            if not finished:
                timer.save_step(step)
        finally:
            if metrics is not None:
                metrics.close()
        if finished and metrics is not None:
            cut = {"train": self.data.train.num_cut, "dev": self.data.dev.num_cut}
            history = tuple(self._history)
            SeedResult(seed=self.seed, folder=self.folder, steps=step, history=history, cut=cut).write()
        return finished

    def _reports(self, step: int) -> Iterator[StepReport]:
        settings = self.settings
        units = ShuffledUnits(self.data.train.num_units, self.seed)
        collator = FeatureCollator(
            self.data.train,
            tokens=self.tokens_per_microbatch,
            device=self.machine.device,
            kind=self.model.task.kind,
            seed=self.seed,
            ranks=self.ranks,
        )
        schedule = Schedule(
            shape=settings.schedule,
            peak=settings.learning_rate,
            warmup_share=settings.warmup_share,
            clip_norm=settings.clip_norm,
        )
        return train(
            self.model,
            self.optimizer,
            [Phase(1.0, units, collator, settings.batch_size)],
            Position(Spent(steps=step), 0, units.at(step, settings.batch_size)),
            budget=Budget("steps", self.total_steps),
            schedule=schedule,
            autocast=self.machine.autocast,
        )

    def _show_progress(self, report: StepReport, loss: float, first: int) -> None:
        """Show the smoothed loss, the speed and, after a few steps of this session, the time left."""
        spent = report.position.spent
        done = spent.steps - first
        left = int(spent.seconds / done * (self.total_steps - spent.steps))
        text = f"{self.title}  step {spent.steps:,} of {self.total_steps:,}  loss {loss:.3f}  "
        text += f"{spent.tokens / max(spent.seconds, 1e-9):,.0f} tokens/s"
        text += f"  {left // 60}:{left % 60:02d} left" * (done >= _STEPS_BEFORE_ESTIMATE)
        self.reporter.training(report.progress, text)

    def _measure(self, step: int, metrics: JsonLines | None) -> None:
        """Evaluate on the development examples; save the model if it is the best so far."""
        # As saved, so that the saved model gives exactly these predictions.
        data, model, epoch = self.data, self.model.as_saved(), step / self.steps_per_epoch

        def progress(stage: str, done: int, tokens: int | None) -> None:
            text = f"{self.title}  step {step:,}  evaluating on dev: {done / (tokens or done):.0%}"
            self.reporter.training(step / self.total_steps, text)

        raw = score_features(model, model.for_inference(self.machine.precision), data.dev, progress)
        scored = (raw, data.dev, data.dev_examples)
        predictions = model.task.predictions(*scored)
        if (tuned := model.task.tuned(predictions, data.dev_examples)) is not model.task:
            model.task, predictions = tuned, tuned.predictions(*scored)
        scores = model.task.measure(predictions, data.dev_examples)
        self._history.append(Measured(step=step, epoch=round(epoch, 4), metrics=scores))
        is_best = best_of(self._history) == len(self._history) - 1
        if metrics is not None:
            metrics.write({"step": step, **{f"dev_{name}": value for name, value in scores.items()}})
            # Saved before the checkpoint that records it. A run that is killed in between measures this step again, on
            # a GPU perhaps with another result, so the best epoch of the last checkpoint is kept beside it.
            if is_best:
                place = _best_folder(self.folder, step)
                model.save(place / MODEL)
                write_predictions(place / _PREDICTIONS, predictions)
                self._best_files = file_checksums(place)
                self._remove_worse({step, *self._kept_best})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(scores.items())[:_METRICS_SHOWN])
        self.reporter.message("dev", f"{self.title}, epoch {epoch:.3g}: {shown}{' (best so far)' if is_best else ''}")
        self.model.train()  # Scoring leaves it in evaluation mode.

    def _resume(self) -> tuple[int, bool, list[Measured]]:
        """Load the newest intact checkpoint; return its step, whether there is one, and the history.

        If none is intact, or the best epoch's model is damaged, everything is trained again.
        """
        try:
            found, damaged = checkpoint.latest(self.folder / "checkpoints")
            history = [] if found is None else self._history_of(found)
        except CheckpointError as error:
            self.reporter.message("restored", f"{self.title}: {error.problem}; trained again from the start")
            _remove_unfinished(self.folder)
            return 0, False, []
        for line in damaged:
            self.reporter.message("warning", f"{line}; using the previous checkpoint")
        if found is None:
            if (self.folder / METRICS).exists():
                self.reporter.message(
                    "resuming", f"{self.title} from the start: it was interrupted before a checkpoint"
                )
            return 0, False, []
        try:
            self.model.load_state_dict(found.weights)
            self.optimizer.load_state(found.moments, found.step)
        except (KeyError, TypeError, RuntimeError) as error:
            todo = f"Remove {self.folder} to train it from the start."
            raise CheckpointError(f"{found.folder} does not fit: {error}", todo=todo) from error
        found.restore(self.folder / METRICS)
        self.reporter.message("resuming", f"{self.title} from step {found.step:,} of {self.total_steps:,}")
        return found.step, True, history

    def _history_of(self, found: TrainingState) -> list[Measured]:
        """Return a checkpoint's history; raises CheckpointError if the best epoch's model is damaged."""
        try:
            history = [Measured(**measured) for measured in found.state["history"]]
            self._best_files = found.state["best"]
            if history:
                compare_files(_best_folder(self.folder, history[best_of(history)].step), self._best_files)
            return history
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"the best epoch's model is damaged: {error}") from error

    def _save(self, step: int, metrics: JsonLines | None) -> None:
        if metrics is None:
            return
        metrics.sync()
        state = {"history": [asdict(measured) for measured in self._history], "best": self._best_files}
        weights, moments = dict(self.model.named_parameters()), self.optimizer.state()
        copies = {METRICS: (self.folder / METRICS).read_bytes()} if (self.folder / METRICS).is_file() else {}
        checkpoint.save(self.folder / "checkpoints", step, state, weights, moments, copies)
        # That of the checkpoint before, too: the run resumes from it if this one is damaged.
        self._kept_best = (*self._kept_best[-1:], self._best_step())
        self._remove_worse(set(self._kept_best))

    def _remove_worse(self, kept: set[int]) -> None:
        for place in set((self.folder / _BEST).glob("step-*")) - {_best_folder(self.folder, step) for step in kept}:
            shutil.rmtree(place)

    def _best_step(self) -> int:
        return self._history[best_of(self._history)].step if self._history else 0


def _logged(report: StepReport) -> dict[str, Any]:
    """Return the reproducible numbers of a step: all but the time."""
    return {
        "step": report.position.spent.steps,
        "loss": report.result.loss,
        "gradient_norm": report.result.gradient_norm,
        "learning_rate": report.learning_rate,
        "num_tokens": report.batch.num_tokens,
    }
