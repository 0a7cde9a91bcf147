"""One training run of one seed, in its own directory: resumes where it stopped, ends with its best epoch's model.

run.json                  development metrics of each epoch, the best epoch; checksums of the other files
metrics.jsonl             loss, gradient norm, learning rate by step (a function of the seed)
checkpoints/, best/       to resume from, and the best epochs so far; removed when the run is finished
model/                    the best epoch's model, a Hugging Face folder
dev_predictions.jsonl     that model's predictions on the development examples
copies/                   the fine-tuning's run.json
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.errors import CheckpointError
from maskwright.core.storage.checksums import compare_files, file_checksums, read_record, write_record
from maskwright.core.storage.files import atomic_path
from maskwright.core.text.amounts import pluralize
from maskwright.core.types import IntArray
from maskwright.finetuning.evaluate import score_features
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.features import FeatureCollator, Features, Layout, ShuffledUnits
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.metrics.scores import comparable
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.predictions import write_predictions
from maskwright.finetuning.tasks.base import Task
from maskwright.fitting.budget import Budget
from maskwright.inference.batches import TextEncoder
from maskwright.model.config import EncoderConfig
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import TRACKER_FILES
from maskwright.training.ranks.device import Machine
from maskwright.training.ranks.distributed import rank
from maskwright.training.ranks.interrupt import StopRequest
from maskwright.training.runs.checkpoint import TrainingState
from maskwright.training.runs.run import Run
from maskwright.training.runs.run_directory import COPIES, METRICS, RECORD
from maskwright.training.steps.loop import Phase, Schedule, StepReport
from maskwright.training.steps.update_rules import build_optimizer

MODEL = "model"
"""Sub-folder with the best epoch's model."""
_PREDICTIONS = "dev_predictions.jsonl"
_BEST = "best"
"""Sub-folder with a folder for each epoch that was the best when it ended, by its step, until the run is finished."""
_NOT_RESULTS = (RECORD, "checkpoints/*", f"{_BEST}/*", f"{COPIES}/*", "test*", ".*", *TRACKER_FILES)
_METRICS_SHOWN = 4
_SAMPLED = 10_000
"""Examples whose lengths are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """The features to train and to select models on, and the development examples."""

    train: Features
    dev: Features
    dev_examples: Sequence[Example]

    @property
    def truncated(self) -> dict[str, int]:
        """Numbers of truncated examples by part."""
        return {"train": len(self.train.truncated), "dev": len(self.dev.truncated)}


def sequence_lengths(existing: Checkpoint, task: Task, examples: Sequence[Any]) -> IntArray:
    """Return the lengths (B,) of sequences of at most `_SAMPLED` examples, each at most the model's limit."""
    sample = examples[:: -(-len(examples) // _SAMPLED)]
    layout = Layout.of(existing.config, existing.tokenizer, existing.max_length)
    features = task.features(sample, layout, training=False)
    return np.diff(features.cu_seqlens)


def training_data(
    existing: Checkpoint, task: Task, settings: Hyperparameters, train: Sequence[Any], dev: Sequence[Any]
) -> TrainingData:
    """Return the features of the examples as the settings ask for them."""
    layout = Layout.of(existing.config, existing.tokenizer, settings.max_length)
    learned = task.features(train, layout, training=True)
    if settings.double_unordered and (others := swapped(train)):
        # A truncated pair is one truncated example, in either order.
        learned = replace(task.features([*train, *others], layout, training=True), truncated=learned.truncated)
    return TrainingData(train=learned, dev=task.features(dev, layout, training=False), dev_examples=dev)


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevResult:
    """Development metrics at the end of an epoch, the main one first."""

    step: int
    epoch: float
    metrics: Mapping[str, float]

    @property
    def main(self) -> float:
        """The main metric, higher is better; -inf if undefined (NaN)."""
        return comparable(next(iter(self.metrics.values())))


def best_of(history: Sequence[DevResult]) -> int:
    """Return the index of the best measurement; of equal ones the last; -1 if there is none.

    Few development examples give many ties; weights trained longer, at a lower learning rate, depend less on chance.
    """
    return max(range(len(history)), key=lambda number: (history[number].main, number), default=-1)


def should_stop(history: Sequence[DevResult], patience: int) -> bool:
    """Return whether the last `patience` measurements were all worse than the best before them; 0 never stops."""
    return bool(patience and history) and len(history) - 1 - best_of(history) >= patience


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """A finished run; `history` are the development metrics of each epoch.

    `examples` are those trained, each epoch's counted, and `seconds` the time of the steps; None from earlier versions.
    """

    seed: int
    folder: Path
    steps: int
    history: tuple[DevResult, ...]
    examples: int | None = None
    seconds: float | None = None

    @property
    def chosen(self) -> DevResult:
        return self.history[best_of(self.history)]

    @property
    def examples_per_second(self) -> float | None:
        return round(self.examples / self.seconds, 2) if self.examples and self.seconds else None

    @property
    def is_rising(self) -> bool:
        scores = [result.main for result in self.history]
        return len(scores) > 1 and scores[-1] > max(scores[:-1])

    def write(self) -> None:
        """Put the best epoch's model in place, and write run.json, without the folder, which may be moved."""
        best = _best_folder(self.folder, self.chosen.step)
        for file in sorted(file for file in best.rglob("*") if file.is_file()):
            path = self.folder / file.relative_to(best)
            path.parent.mkdir(exist_ok=True)
            with atomic_path(path) as temporary:
                shutil.copyfile(file, temporary)
        data = {name: value for name, value in asdict(self).items() if name != "folder"}
        files = file_checksums(self.folder, without=_NOT_RESULTS)
        write_record(self.folder / RECORD, {**data, "files": files, "finished": True})
        remove_unfinished(self.folder)


def remove_unfinished(folder: Path) -> None:
    """Remove what only an unfinished run needs."""
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
        history = tuple(DevResult(**result) for result in data["history"])
        fields = {name: data.get(name) for name in ("examples", "seconds")}
        return SeedResult(seed=data["seed"], folder=folder, steps=data["steps"], history=history, **fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder} is damaged: {error}", hint=f"Remove {folder} and run the same command again to train it again."
        ) from error


def rate_share(name: str, config: EncoderConfig, decay: float) -> float:
    """Return the factor on the head's learning rate for a parameter, "encoder.*" or of the head.

    Layer-wise decay is ELECTRA's (Clark et al. 2020, appendix B; model/optimization.py:181-193). Each weight has a
    depth: embeddings 0, layer k has k + 1, the pooler (which ELECTRA lacks) L + 1, the head L + 2; its learning rate is
    the head's times decay^(L + 2 - depth). So the top layer learns at decay^2, not at decay.
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


def trained_parameters(model: FineTunedModel, frozen: bool) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters to train: all, or those of the head and the pooler; the others need no gradient."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not frozen or name.startswith(("head.", "encoder.pooler.")))
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


class SeedRun(Run[FineTunedModel]):
    """A run of one seed, which ends with its best epoch's model.

    `model` is the encoder with a new head, on its device; `seed` keys data order and dropout; dropout masks depend on
    `tokens_per_microbatch` and `ranks` (of `FeatureCollator`).
    """

    saves_when_finished = False

    def __init__(
        self,
        *,
        folder: Path,
        model: FineTunedModel,
        data: TrainingData,
        settings: Hyperparameters,
        seed: int,
        machine: Machine,
        tokens_per_microbatch: int,
        ranks: int,
        reporter: Reporter,
        trackers: Sequence[str] = (),
    ) -> None:
        config, decay = model.encoder.config, settings.layer_decay
        collator = FeatureCollator(
            data.train,
            tokens=tokens_per_microbatch,
            device=machine.device,
            kind=model.task.kind,
            seed=seed,
            ranks=ranks,
        )
        super().__init__(
            folder=folder,
            model=model.train(),
            optimizer=build_optimizer(
                trained_parameters(model, settings.frozen),
                settings.optimizer,
                lambda name: rate_share(name, config, decay),
            ),
            phases=[Phase(1.0, ShuffledUnits(data.train.num_units, seed), collator, settings.batch_size)],
            budget=Budget("steps", settings.total_steps(data.train.num_units)),
            schedule=Schedule(
                shape=settings.schedule,
                peak=settings.learning_rate,
                warmup_share=settings.warmup_share,
                clip_norm=settings.clip_norm,
            ),
            machine=machine,
            reporter=reporter,
            title=f"seed {seed}",
            trackers=trackers,
            name=f"{folder.absolute().parents[1].name}-{folder.name}",
            settings={"task": model.task.to_json(), **settings.model_dump(mode="json")},
        )
        self.seed, self.data, self._patience = seed, data, settings.patience
        self._steps_per_epoch = settings.steps_of_epoch(data.train.num_units)
        self._seconds = 0.0
        self._history: list[DevResult] = []
        self._kept_best: tuple[int, ...] = ()
        self._best_files: dict[str, str] = {}

    @property
    def is_finished(self) -> bool:
        return super().is_finished or should_stop(self._history, self._patience)

    def run(self, stop: StopRequest, checkpoint_seconds: float) -> bool:
        """Train until the run is finished or a stop is requested; return whether it is finished."""
        self.resume()
        self._kept_best = (self._best_step(),)
        finished = self.train_steps(stop, checkpoint_seconds)
        if finished and self.progress < 1:
            self.reporter.message(
                "stopped", f"{self.title} early: no improvement in {pluralize(self._patience, 'epoch')}"
            )
        if finished and rank() == 0:
            SeedResult(
                seed=self.seed,
                folder=self.folder,
                steps=self.position.spent.steps,
                history=tuple(self._history),
                examples=round(self.position.epochs * self.data.train.num_units),
                seconds=round(self._seconds, 3),
            ).write()
        return finished

    def evaluate(self, report: StepReport, progress_before: float) -> None:
        """After an epoch, evaluate on the development examples; save the model if it is the best so far."""
        self._seconds += report.seconds
        step = report.position.spent.steps
        if step % self._steps_per_epoch and report.progress < 1:
            return
        # As saved, so that the saved model gives exactly these predictions.
        data, model, epoch = self.data, self.model.as_saved(), step / self._steps_per_epoch

        def progress(stage: str, done: int, tokens: int | None) -> None:
            text = f"{self.title}  step {step:,}  evaluating on dev: {done / (tokens or done):.0%}"
            self.reporter.training(report.progress, text)

        raw = score_features(model, TextEncoder(model.encoder, self.machine.precision), data.dev, progress)
        scored = (raw, data.dev, data.dev_examples)
        predictions = model.task.predictions(*scored)
        if (tuned := model.task.tuned(predictions, data.dev_examples)) is not model.task:
            model.task, predictions = tuned, tuned.predictions(*scored)
        scores = model.task.measure(predictions, data.dev_examples)
        self._history.append(DevResult(step=step, epoch=round(epoch, 4), metrics=scores))
        is_best = best_of(self._history) == len(self._history) - 1
        if self.logger is not None:
            self.logger.write(step, {f"dev_{name}": value for name, value in scores.items()})
            # Saved before the checkpoint that records it. A run that is killed in between measures this step again, on
            # a GPU perhaps with another result, so the best epoch of the last checkpoint is kept beside it.
            if is_best:
                folder = _best_folder(self.folder, step)
                model.save(folder / MODEL)
                write_predictions(folder / _PREDICTIONS, predictions)
                self._best_files = file_checksums(folder)
                self._remove_worse({step, *self._kept_best})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(scores.items())[:_METRICS_SHOWN])
        self.reporter.message("dev", f"{self.title}, epoch {epoch:.3g}: {shown}{' (best so far)' if is_best else ''}")
        self.model.train()  # Scoring leaves it in evaluation mode.

    def weights(self) -> Mapping[str, Tensor]:
        return self.model.state_dict()

    def load_weights(self, saved: TrainingState) -> None:
        self.model.load_state_dict(saved.weights)

    def state(self) -> dict[str, Any]:
        history = [asdict(result) for result in self._history]
        return {**super().state(), "history": history, "best": self._best_files, "seconds": self._seconds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._history, self._best_files = [DevResult(**result) for result in state["history"]], state["best"]
        # Earlier versions counted evaluations and checkpoints too.
        self._seconds = state.get("seconds", self.position.spent.seconds)

    def read_checkpoint(self) -> TrainingState | None:
        """Return the newest intact checkpoint.

        If none is intact, or the best epoch's model is damaged, everything is trained again.
        """
        try:
            if (saved := super().read_checkpoint()) is not None:
                self._check_best(saved)
        except CheckpointError as error:
            self.reporter.message("restored", f"{self.title}: {error.problem}; trained again from the start")
            remove_unfinished(self.folder)
            return None
        if saved is None and (self.folder / METRICS).exists():
            self.reporter.message("resuming", f"{self.title} from the start: it was interrupted before a checkpoint")
        return saved

    def _check_best(self, saved: TrainingState) -> None:
        """Raise CheckpointError if a checkpoint's best epoch's model is damaged."""
        try:
            history = [DevResult(**result) for result in saved.state["history"]]
            if history:
                compare_files(_best_folder(self.folder, history[best_of(history)].step), saved.state["best"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"the best epoch's model is damaged: {error}") from error

    def save(self) -> None:
        """Write a checkpoint, on rank 0, and remove the models of epochs that are no longer the best."""
        super().save()
        # That of the checkpoint before, too: the run resumes from it if this one is damaged.
        self._kept_best = (*self._kept_best[-1:], self._best_step())
        self._remove_worse(set(self._kept_best))

    def _remove_worse(self, kept: set[int]) -> None:
        for folder in set((self.folder / _BEST).glob("step-*")) - {_best_folder(self.folder, step) for step in kept}:
            shutil.rmtree(folder)

    def _best_step(self) -> int:
        return self._history[best_of(self._history)].step if self._history else 0
