"""All trainings of one request: the grid with the first seed, then every seed at the point that was best on dev."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.evaluation.examples import TextExample
from maskwright.evaluation.fine_tuned import FineTunedModel, build
from maskwright.evaluation.grid import Point, point_name
from maskwright.evaluation.hyperparameters import Hyperparameters
from maskwright.evaluation.scoring import features_of
from maskwright.evaluation.seed_run import Lessons, SeedResult, SeedRun, read_result
from maskwright.evaluation.tasks.base import Task
from maskwright.training.device import Machine
from maskwright.training.interrupt import StopRequest
from maskwright.training.reporting import Reporter

RUNS = "runs"
"""Sub-folder in which all trainings lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """One point of the grid, trained with the first seed.

    Attributes:
        values: The fields' values; none without a grid.
        result: What the first seed brought.
    """

    values: Point
    result: SeedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """How far the trainings are.

    Attributes:
        points: The points of the grid that are done.
        chosen: Number of the best point; None as long as one is missing.
        seeds: The seeds at that point that are done, in order.
        finished: Whether nothing is left to do.
    """

    points: tuple[GridPoint, ...]
    chosen: int | None
    seeds: tuple[SeedResult, ...]
    finished: bool


class Study:
    """Holds what all trainings share.

    Args:
        folder: The request's folder.
        model: What is fine-tuned, as the user named it.
        task: What for.
        train, dev: Examples.
        machine: Device and precision.
        talk: Where to report.
        checkpoint_seconds: Time between checkpoints.
    """

    def __init__(
        self,
        *,
        folder: Path,
        model: str,
        task: Task[Any],
        train: Sequence[Any],
        dev: Sequence[Any],
        machine: Machine,
        talk: Reporter,
        checkpoint_seconds: float,
    ) -> None:
        self.folder, self.model, self.task, self.train, self.dev = folder, model, task, train, dev
        self.machine, self.talk, self.checkpoint_seconds = machine, talk, checkpoint_seconds
        self._lessons: dict[tuple[int, bool], Lessons] = {}

    def build(self, settings: Hyperparameters, seed: int) -> FineTunedModel:
        """Put a fresh head on the model, on the CPU."""
        return build(
            self.model,
            self.task,
            seed=seed,
            max_length=settings.max_length,
            hidden_dropout=settings.hidden_dropout,
            attention_dropout=settings.attention_dropout,
            head_dropout=settings.head_dropout,
        )

    def lessons(self, model: FineTunedModel, settings: Hyperparameters) -> Lessons:
        """Return features of the examples; they depend on two settings only, and are made once for each."""
        key = (settings.max_length, settings.both_orders)
        if key not in self._lessons:
            train = [*self.train, *swapped(self.train)] if settings.both_orders else self.train
            self._lessons[key] = Lessons(
                train=features_of(model, train, training=True),
                dev=features_of(model, self.dev, training=False),
                dev_examples=self.dev,
            )
        return self._lessons[key]

    def run(
        self, settings: Hyperparameters, points: Sequence[Point], seeds: Sequence[int], stop: StopRequest
    ) -> StudyEnd:
        """Train whatever is not trained yet.

        Args:
            settings: Of all trainings but for what a point changes.
            points: The grid; one empty point without one.
            seeds: One or more; the first chooses the point.
            stop: Becomes true when the user asks to stop.
        """
        done: list[GridPoint] = []
        for point in points:
            result = self._train(settings, point, seeds[0], stop)
            if not result.finished:
                return StudyEnd(points=tuple(done), chosen=None, seeds=(), finished=False)
            done.append(GridPoint(values=point, result=result))
        chosen = max(range(len(done)), key=lambda number: (done[number].result.chosen.main, -number))
        if len(points) > 1:
            self.talk.say("chosen", f"{point_name(points[chosen])}, the best on dev with seed {seeds[0]}")
        finished = [done[chosen].result]
        for seed in seeds[1:]:
            result = self._train(settings, points[chosen], seed, stop)
            if not result.finished:
                return StudyEnd(points=tuple(done), chosen=chosen, seeds=tuple(finished), finished=False)
            finished.append(result)
        return StudyEnd(points=tuple(done), chosen=chosen, seeds=tuple(finished), finished=True)

    def _train(self, settings: Hyperparameters, point: Point, seed: int, stop: StopRequest) -> SeedResult:
        folder = self.folder / RUNS / point_name(point) / f"seed-{seed}"
        title = f"{point_name(point)} seed {seed}".strip()
        if (before := read_result(folder)) is not None:
            self.talk.say("finished", f"{title} is trained already ({before.chosen.main:.4g})")
            return before
        if stop:
            return SeedResult(seed=seed, folder=folder, finished=False, steps=0, history=(), best=-1, cut={})
        here = settings.replace(**point)
        model = self.build(here, seed)
        lessons = self.lessons(model, here)
        folder.mkdir(parents=True, exist_ok=True)
        run = SeedRun(
            folder=folder,
            model=model.to(self.machine.device),
            lessons=lessons,
            settings=here,
            seed=seed,
            machine=self.machine,
            talk=self.talk,
            title=title,
        )
        return run.run(stop, self.checkpoint_seconds)


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]
