"""A run's metrics: JSON lines, trackers, and the text of the progress line.

`metrics.jsonl` holds only numbers that the seed determines, so that a resumed run's file equals an uninterrupted
one's, byte for byte. Speeds and times go to `timing.jsonl`. Both go to the run's trackers, e.g. TensorBoard.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.fitting.budget import Budget
from maskwright.reporting.metrics import JsonLines, worth_logging
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import Status, Trackers
from maskwright.training.runs.run_directory import METRICS, TIMING
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.evaluation import Baseline
from maskwright.training.steps.loop import StepReport
from maskwright.training.steps.step import ObjectiveResult

_HIGHEST_MFU = 0.9
"""A step is more than matrix multiplications at the peak."""


def _utilization(mfu: float) -> str:
    """Return the model FLOPs utilization in words: near 1 or above, the peak was measured beside other processes."""
    if mfu > _HIGHEST_MFU:
        return "model FLOPs utilization unknown (the peak was measured beside other processes)"
    return f"{mfu:.0%} model FLOPs utilization"


def _named(results: Mapping[str, ObjectiveResult]) -> dict[str, float]:
    """Return the numbers of all objectives by their names in metrics.jsonl, e.g. "mlm_loss"."""
    numbers: dict[str, float] = {}
    for kind, result in results.items():
        numbers[f"{kind}_loss"] = result.loss
        if result.accuracy is not None:
            numbers[f"{kind}_accuracy"] = result.accuracy
        numbers |= {f"{kind}_{name}": share for name, share in result.details.items()}
    return numbers


class MetricsLogger:
    """Writes the metrics of each step and updates the progress line, which begins with `title`.

    `last_step` is the number of steps done so far; `peak_flops` is for the model FLOPs utilization (MFU). If that is
    None, timing.jsonl is not written. `skipped_flops` are those of a step that it did not compute.
    """

    _SMOOTHING = 0.95
    _STEPS_BEFORE_ESTIMATE = 5
    """Steps of a session before the time left is shown; the first ones are slower."""

    def __init__(
        self,
        folder: Path,
        last_step: int,
        budget: Budget,
        reporter: Reporter,
        trackers: Trackers,
        *,
        title: str = "",
        peak_flops: float | None = None,
        skipped_flops: Callable[[StepBatch], float] = lambda batch: 0.0,
    ) -> None:
        self._metrics = JsonLines(folder / METRICS, last_step)
        self._budget, self._reporter, self._trackers = budget, reporter, trackers
        self._title, self._peak_flops, self._skipped_flops = title, peak_flops, skipped_flops
        self._timing: JsonLines | None = None
        if peak_flops is not None:
            self._timing = JsonLines(folder / TIMING, last_step)
        self._smooth_loss: float | None = None
        self._window, self._session = np.zeros(5), np.zeros(5)
        """Sums of steps, tokens, seconds, seconds of waiting and FLOPs."""

    def step(self, report: StepReport) -> None:
        position, result = report.position, report.result
        step, flops = position.spent.steps, report.flops - self._skipped_flops(report.batch)
        for sums in (self._window, self._session):
            sums += (1, report.batch.num_tokens, report.seconds, report.waited, flops)
        old = self._smooth_loss
        self._smooth_loss = result.loss if old is None else self._SMOOTHING * old + (1 - self._SMOOTHING) * result.loss
        if worth_logging(step) or report.progress >= 1:
            self.write(
                step,
                {
                    "loss": result.loss,
                    **_named(result.objectives),
                    "learning_rate": report.learning_rate,
                    "gradient_norm": result.gradient_norm,
                    "tokens": position.spent.tokens,
                    "epochs": position.epochs,
                    "phase": position.phase,
                    "sequences": report.batch.num_sequences,
                    **{f"{kind}_targets": count for kind, count in report.batch.counts.items()},
                },
            )
        if self._window[2] >= 2 or report.progress >= 1:
            self._record_speed(report)

    def held_out(self, step: int, measured: Mapping[str, ObjectiveResult], baseline: Baseline | None) -> None:
        numbers = {f"held_out_{name}": number for name, number in _named(measured).items()}
        if baseline is not None:
            numbers["unigram_loss"], numbers["unigram_accuracy"] = baseline.loss, baseline.accuracy
        self.write(step, numbers)

    def speed_line(self, peak_flops: float) -> str:
        """Return one line on the speed of this session; `peak_flops` were measured after it: the higher peak counts."""
        if not self._session[0]:
            return "no step was done"
        self._peak_flops = max(self._peak_flops or 0.0, peak_flops)
        speed = self._speeds(self._session)
        return (
            f"{speed['tokens_per_second']:,.0f} tokens/s, {_utilization(speed['mfu'])}, "
            f"{speed['data_wait']:.1%} of the time waiting for data"
        )

    def close(self, status: Status = "FINISHED") -> None:
        """Flush and close all files, and end the tracked runs with a status."""
        self._metrics.close()
        if self._timing is not None:
            self._timing.close()
        self._trackers.close(status)

    def sync(self) -> None:
        """Flush to disk (fsync); called before each checkpoint."""
        self._metrics.sync()

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Record numbers of a step that the seed determines."""
        self._metrics.write({"step": step, **numbers})
        self._trackers.log(numbers, step)

    def _speeds(self, sums: NDArray[np.float64]) -> dict[str, float]:
        steps, tokens, seconds, waited, flops = sums.tolist()
        return {
            "tokens_per_second": tokens / seconds,
            "data_wait": waited / seconds,
            "steps_per_second": steps / seconds,
            **({} if self._peak_flops is None else {"mfu": flops / seconds / self._peak_flops}),
        }

    def _record_speed(self, report: StepReport) -> None:
        """Record speeds over the steps since the last call, and update the progress line."""
        spent = report.position.spent
        numbers = {"seconds": spent.seconds, **self._speeds(self._window)}
        self._window[:] = 0
        if self._timing is not None:
            self._timing.write({"step": spent.steps, **numbers})
        self._trackers.log({f"timing/{name}": value for name, value in numbers.items()}, spent.steps)
        left = spent.seconds * (1 - report.progress) / report.progress if report.progress else 0.0
        if self._budget.unit == "seconds":
            left = self._budget.amount - spent.seconds
        minutes, seconds = divmod(int(max(left, 0)), 60)
        total = f" of {self._budget.amount:,.0f}" if self._budget.unit == "steps" else ""
        parts = [*filter(None, [self._title]), f"step {spent.steps:,}{total}", f"loss {self._smooth_loss:.3f}"]
        shares = _named(report.result.objectives)
        for name, label in (("mlm_accuracy", "mlm_acc"), ("rtd_recall", "rtd_recall")):
            if name in shares:
                parts.append(f"{label} {shares[name]:.2f}")
        parts.append(f"{numbers['tokens_per_second']:,.0f} tokens/s")
        if self._budget.unit == "seconds" or self._session[0] >= self._STEPS_BEFORE_ESTIMATE:
            parts.append(f"{minutes}:{seconds:02d} left")
        self._reporter.training(report.progress, "  ".join(parts))
