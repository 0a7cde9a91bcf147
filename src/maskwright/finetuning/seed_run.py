"""One training run of one seed, in its own directory: resumes where it stopped, ends with its best epoch's model.

run.json                  progress, development metrics of each epoch, the best epoch; or why it failed
metrics.jsonl             loss, gradient norm, learning rate by step (a function of the seed)
checkpoints/              removed when the run is finished
model/                    the best epoch's model, a Hugging Face folder
dev_predictions.jsonl     that model's predictions on the development examples
"""

import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError
from maskwright.core.files import read_json, write_json
from maskwright.finetuning.evaluating import score_units, tuned, write_predictions
from maskwright.finetuning.features import Batcher
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.loop import LayerwiseAdamW, StepReport, train
from maskwright.finetuning.plan import TrainingData
from maskwright.training import checkpoint
from maskwright.training.checkpoint import CheckpointTimer
from maskwright.training.device import Machine
from maskwright.training.interrupt import StopRequest
from maskwright.training.metrics import JsonLines, worth_logging
from maskwright.training.reporting import Reporter


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

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def best_of(history: Sequence[Measured]) -> int:
    """Return the index of the best measurement; of equal ones the last.

    Few development examples give many ties; weights trained longer, at a lower learning rate, depend less on chance.
    """
    return max(range(len(history)), key=lambda number: (history[number].main, number))


def should_stop(history: Sequence[Measured], patience: int) -> bool:
    """Whether the last `patience` measurements were all worse than the best before them; 0 never stops."""
    return bool(patience and history) and len(history) - 1 - best_of(history) >= patience


_SHOWN = 4
MODEL = "model"
"""Sub-folder with the best epoch's model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """The state of a run.

    Attributes:
        seed, folder: As given.
        finished: Whether it is done. If not, the same call resumes it.
        steps: Steps done.
        history: Development metrics of each epoch.
        best: Index into `history` of the weights that are kept; -1 before the first epoch ends.
        cut: Number of truncated examples, by "train" and "dev".
        failure: Why it failed ("the loss is nan"), or "".
    """

    seed: int
    folder: Path
    finished: bool
    steps: int
    history: tuple[Measured, ...]
    best: int
    cut: Mapping[str, int]
    failure: str = ""

    @property
    def chosen(self) -> Measured:
        """Metrics of the weights that are kept."""
        return self.history[self.best]

    @property
    def main(self) -> float:
        """The main metric of the weights that are kept; -inf for a failed run."""
        return -math.inf if self.failure else self.chosen.main

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without the folder, which may be moved."""
        return {
            "seed": self.seed,
            "finished": self.finished,
            "steps": self.steps,
            "best": self.best,
            "cut": dict(self.cut),
            "history": [measured.to_json() for measured in self.history],
            "failure": self.failure,
        }


def record_failure(folder: Path, seed: int, failure: str) -> SeedResult:
    """Record that a run failed. It is not repeated: the same seed and settings would fail again."""
    result = SeedResult(seed=seed, folder=folder, finished=True, steps=0, history=(), best=-1, cut={}, failure=failure)
    write_json(folder / "run.json", result.to_json())
    for kept in ("checkpoints", MODEL):
        shutil.rmtree(folder / kept, ignore_errors=True)
    return result


def read_result(folder: Path) -> SeedResult | None:
    """Return the result of a finished run, else None."""
    record = folder / "run.json"
    if not record.exists():
        return None
    try:
        held = read_json(record)
        history = tuple(Measured(**measured) for measured in held["history"])
        return SeedResult(**{**held, "folder": folder, "history": history})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{record} cannot be read: {error}", todo=f"Remove {folder} to train it again."
        ) from error


class SeedRun:
    """A run with everything it needs.

    `model` is the encoder with a new head, on its device; `seed` keys data order and dropout; dropout masks depend on
    `tokens_per_microbatch`.
    """

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
        talk: Reporter,
        title: str,
    ) -> None:
        self.folder, self.model, self.data = folder, model, data
        self.settings, self.seed, self.machine, self.talk, self.title = settings, seed, machine, talk, title
        self.optimizer = LayerwiseAdamW(
            model.named_parameters(), model.encoder.config, settings.optimizer, settings.layer_decay
        )
        self._batcher = Batcher(
            data.train,
            pad=model.tokenizer.special_tokens.pad,
            tokens=tokens_per_microbatch,
            device=machine.device,
        )
        self._history: list[Measured] = []

    def run(self, stop: StopRequest, checkpoint_seconds: float) -> SeedResult:
        """Train until all epochs are done, early stopping applies, or `stop` becomes true.

        Raises:
            TrainingError: If the loss is not finite; the last checkpoint is valid.
            DeviceError: If the disk is full; the last checkpoint is valid.
        """
        num_units = self.data.train.num_units
        per_epoch, total = self.settings.steps_of_epoch(num_units), self.settings.total_steps(num_units)
        step, kept = self._resume()
        metrics = JsonLines(self.folder / "metrics.jsonl", step)
        keeper = CheckpointTimer(lambda: self._save(step, metrics), step if kept else -1, checkpoint_seconds)
        live = _LiveLine(self.talk, self.title, step, total)
        try:
            for report in self._reports(step, total):
                step = report.step
                live.step(report)
                if worth_logging(step) or step == total:
                    metrics.write(_logged(report))
                if step % per_epoch == 0 or step == total:
                    self._measure(step, step / per_epoch, step / total, metrics)
                if self._stops_early() or stop:
                    break
                if keeper.is_due():
                    keeper.keep(step)
            ended = step == total or self._stops_early()
            if not ended:
                keeper.keep(step)
        finally:
            metrics.close()
        result = SeedResult(
            seed=self.seed,
            folder=self.folder,
            finished=ended,
            steps=step,
            history=tuple(self._history),
            best=best_of(self._history) if self._history else -1,
            cut={"train": self.data.train.num_cut, "dev": self.data.dev.num_cut},
        )
        if ended:
            write_json(self.folder / "run.json", result.to_json())
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        return result

    def _stops_early(self) -> bool:
        return should_stop(self._history, self.settings.patience)

    def _reports(self, step: int, total: int) -> Iterator[StepReport]:
        return train(
            self.model,
            self.optimizer,
            self._batcher,
            settings=self.settings,
            seed=self.seed,
            first_step=step,
            last_step=total,
            autocast=self.machine.autocast,
        )

    def _measure(self, step: int, epoch: float, share: float, metrics: JsonLines) -> None:
        """Evaluate on the development examples; save the model if it is the best so far."""
        # As saved, so that the saved model gives exactly these predictions.
        data, model = self.data, self.model.as_saved()

        def progress(stage: str, done: int, tokens: int | None) -> None:
            self.talk.training(share, f"{self.title}  step {step:,}  evaluating on dev: {done / (tokens or done):.0%}")

        unit_scores = score_units(model, data.dev, progress, autocast=self.machine.autocast)
        model.task = tuned(model.task, unit_scores, data.dev, data.dev_examples, model.tokenizer)
        predictions = model.task.predictions(unit_scores, data.dev, data.dev_examples, model.tokenizer)
        scores = model.task.measure(predictions, data.dev_examples)
        self._history.append(Measured(step=step, epoch=round(epoch, 4), metrics=scores))
        metrics.write({"step": step, **{f"dev_{name}": value for name, value in scores.items()}})
        is_best = best_of(self._history) == len(self._history) - 1
        # Saved before the checkpoint that records it. After a kill in between, the resumed run computes and saves the
        # same weights bit for bit.
        if is_best:
            write_predictions(self.folder / "dev_predictions.jsonl", predictions)
            model.save(self.folder / MODEL)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in list(scores.items())[:_SHOWN])
        self.talk.say("dev", f"{self.title}, epoch {epoch:.3g}: {shown}{' (best so far)' if is_best else ''}")

    def _resume(self) -> tuple[int, bool]:
        for leftover in self.folder.glob("**/.*.tmp"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        found, damaged = checkpoint.latest(self.folder / "checkpoints")
        for line in damaged:
            self.talk.say("warning", f"{line}; using the one before")
        if found is None:
            return 0, False
        try:
            self._history = [Measured(**measured) for measured in found.state["history"]]
            self.model.load_state_dict(found.weights)
            self.optimizer.load_state(found.moments, found.step)
        except (KeyError, TypeError, RuntimeError) as error:
            raise CheckpointError(
                f"{found.folder} does not fit: {error}", todo=f"Remove {self.folder} to train it from the start."
            ) from error
        self.talk.say("resume", f"{self.title} resumes after step {found.step:,}")
        return found.step, True

    def _save(self, step: int, metrics: JsonLines) -> None:
        metrics.sync()
        checkpoint.save(
            self.folder / "checkpoints",
            step,
            {"history": [measured.to_json() for measured in self._history]},
            dict(self.model.named_parameters()),
            self.optimizer.state(),
        )


def _logged(report: StepReport) -> dict[str, Any]:
    """Return the reproducible numbers of a step: all but the time."""
    numbers = asdict(report)
    del numbers["seconds"]
    return numbers


class _LiveLine:
    """The progress line: step, smoothed loss, speed, time left."""

    _SMOOTHING = 0.95
    _SECONDS = 0.5

    def __init__(self, talk: Reporter, title: str, first: int, total: int) -> None:
        self._talk, self._title, self._first, self._total = talk, title, first, total
        self._loss: float | None = None
        self._tokens, self._begun, self._said = 0, time.monotonic(), 0.0

    def step(self, report: StepReport) -> None:
        self._loss = (
            report.loss if self._loss is None else self._SMOOTHING * self._loss + (1 - self._SMOOTHING) * report.loss
        )
        self._tokens += report.num_tokens
        now = time.monotonic()
        if now - self._said < self._SECONDS:
            return
        self._said = now
        passed = now - self._begun
        left = passed / (report.step - self._first) * (self._total - report.step)
        self._talk.training(
            report.step / self._total,
            f"{self._title}  step {report.step:,} of {self._total:,}  loss {self._loss:.3f}  "
            f"{self._tokens / max(passed, 1e-9):,.0f} tokens/s  {int(left // 60)}:{int(left % 60):02d} left",
        )
