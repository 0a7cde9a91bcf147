"""Reports between steps: spikes of the loss, slow ranks, and a plan that does not fit the measured speed."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_low

import numpy as np

from maskwright.fitting.budget import Budget, Spent
from maskwright.reporting.reporter import Reporter
from maskwright.training.steps.loop import StepReport

_WARMUP_STEPS = 3
"""First steps of a session, which are slower: their times are not compared."""
_DEVIATIONS, _WINDOW, _FEWEST = 7.0, 1000, 100
_SLOW_STEPS, _SLOW_FACTOR = 50, 1.5
_REPLAN_FROM, _REPLAN_FACTOR, _REPLAN_AGAIN_FACTOR = 0.05, 1.25, 2.0
"""Share of a time budget after which the plan is compared with the measured speed; ratio of both that is reported the
first time, and again."""
_REPLAN_STEPS = 10
"""Steps of a session before the comparison."""


class Spikes:
    """Finds spikes in series of numbers, such as the loss of each step. Steps of different phases are not compared."""

    def __init__(self) -> None:
        self._phase, self._last = 0, dict[str, deque[float]]()

    def find(self, phase: int, numbers: Mapping[str, float]) -> list[str]:
        """Add a step's numbers, by name; describe those that are spikes."""
        if phase != self._phase:  # Other lengths or masks change the level of the loss and of the gradients.
            self._phase, self._last = phase, {}
        spikes = []
        for name, number in numbers.items():
            last = self._last.setdefault(name, deque(maxlen=_WINDOW))
            if len(last) >= _FEWEST:
                mean, deviation = float(np.mean(last)), float(np.std(last))
                if number > mean + _DEVIATIONS * deviation:
                    spikes.append(f"{name} {number:.4g} (mean of the last {len(last):,} steps: {mean:.4g})")
            last.append(number)
        return spikes


class SlowRanks:
    """Finds ranks that take over 1.5 times the median of all ranks, in each 50 steps; of an even number the lower."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._num_steps = 0
        self._named: set[int] = set()

    def find(self, seconds: Sequence[float]) -> Iterator[tuple[int, float, float]]:
        """Take note of a step: each rank's seconds per token of its share, before it waits for the others.

        Yields rank, seconds per token, and their ratio to the median; each rank only once.
        """
        self._sums = [sum(pair) for pair in zip(self._sums or [0.0] * len(seconds), seconds, strict=True)]
        self._num_steps += 1
        if self._num_steps % _SLOW_STEPS:
            return
        median = median_low(self._sums)
        for rank, total in enumerate(self._sums):
            if total > _SLOW_FACTOR * median and rank not in self._named:
                self._named.add(rank)
                yield rank, total / _SLOW_STEPS, total / max(median, 1e-9)
        self._sums = []


class StepMonitor:
    """Reports spikes and slow ranks; `hosts` is the name of each rank's machine."""

    def __init__(self, hosts: Sequence[str], reporter: Reporter) -> None:
        self._hosts, self._reporter = hosts, reporter
        self._spikes, self._num_spikes = Spikes(), 0
        self._slow_ranks, self._num_steps = SlowRanks(), 0

    def step(self, report: StepReport) -> None:
        """Take note of a step of this session."""
        self._num_steps += 1
        result = report.result
        numbers = {"loss": result.loss, "gradient norm": result.gradient_norm}
        for spike in self._spikes.find(report.position.phase, numbers):
            self._num_spikes += 1
            if self._num_spikes.bit_count() == 1:  # the first, second, fourth, eighth ...
                where = f"step {report.position.spent.steps:,} ({report.batch.key})"
                self._reporter.message("spike", f"{where}: {spike}; number {self._num_spikes:,}")
        if self._num_steps > _WARMUP_STEPS:
            for slow, seconds, ratio in self._slow_ranks.find(report.rank_seconds):
                self._reporter.message(
                    "slow",
                    f"rank {slow} on {self._hosts[slow]} takes {1000 * seconds:.3g} s per 1,000 tokens, "
                    f"{ratio:.1f} times the median of the ranks; all wait for it",
                )


class PlanMonitor:
    """Compares the planned tokens of a time budget with those of the measured speed, and reports a wrong plan.

    `expected_tokens` is the plan of the first session, `planned_tokens` its last correction, if there is one.
    """

    def __init__(self, budget: Budget, expected_tokens: float, planned_tokens: float | None) -> None:
        self._budget, self._expected_tokens = budget, expected_tokens
        self._planned_tokens = planned_tokens or expected_tokens
        self._num_steps = 0
        self._warmed_up: Spent | None = None

    def correct(self, spent: Spent, progress: float) -> tuple[float, float] | None:
        """Take note of a step of this session; return the planned tokens, before and now, if the plan is corrected."""
        self._num_steps += 1
        if self._num_steps == _WARMUP_STEPS:
            self._warmed_up = spent
        if self._warmed_up is None or self._num_steps < _REPLAN_STEPS or not _REPLAN_FROM <= progress < 1:
            return None
        speed = (spent.tokens - self._warmed_up.tokens) / (spent.seconds - self._warmed_up.seconds)
        tokens = spent.tokens + speed * (self._budget.amount - spent.seconds)
        factor = _REPLAN_FACTOR if self._planned_tokens == self._expected_tokens else _REPLAN_AGAIN_FACTOR
        if 1 / factor <= tokens / self._planned_tokens <= factor:
            return None
        planned, self._planned_tokens = self._planned_tokens, tokens
        return planned, tokens
