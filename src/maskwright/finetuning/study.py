"""All runs of one request: the grid with the first seed, then every seed at the best point, then the test examples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError, TrainingError
from maskwright.core.files import read_json, write_json
from maskwright.data.progress import Progress, no_progress
from maskwright.finetuning.checks import unlabeled
from maskwright.finetuning.evaluating import features_of, predict_features, write_predictions
from maskwright.finetuning.fine_tuned import FineTunedModel, build, load
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.labeled import Part
from maskwright.finetuning.plan import PlannedPoint, Point, TrainingDataMaker, point_name
from maskwright.finetuning.seed_run import MODEL, SeedResult, SeedRun, read_result, record_failure
from maskwright.finetuning.tasks.base import Task
from maskwright.training.device import Machine
from maskwright.training.interrupt import StopRequest
from maskwright.training.reporting import Reporter

PREDICTIONS = "test_predictions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScores:
    """Test scores of one seed's model.

    Attributes:
        examples: Fingerprint of the examples.
        metrics: None where they have no labels.
        num_cut: Truncated examples.
    """

    examples: str
    metrics: dict[str, float] | None
    num_cut: int


def measure_test(folder: Path, test: Part, machine: Machine, progress: Progress = no_progress) -> TestScores:
    """Predict the test examples with a finished run's model, or return the scores of an earlier call for the same ones.

    Writes test_predictions.jsonl and test.json into the run's folder.
    """
    record = folder / "test.json"
    fingerprint = test.fingerprint
    if record.exists():
        try:
            before = TestScores(**read_json(record))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{record} cannot be read: {error}", todo="Remove it to evaluate again.") from error
        if before.examples == fingerprint:
            return before
    model = load(folder / MODEL).to(machine.device)
    features = features_of(model, test.examples, training=False)
    predictions = predict_features(model, features, test.examples, progress, autocast=machine.autocast)
    write_predictions(folder / PREDICTIONS, predictions)
    metrics = None if unlabeled(test.examples) else model.task.measure(predictions, test.examples)
    scores = TestScores(examples=fingerprint, metrics=metrics, num_cut=features.num_cut)
    write_json(record, asdict(scores))
    return scores


RUNS = "runs"
"""Sub-folder of all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """A grid point's values (empty without a grid) and the result of the first seed."""

    values: Point
    result: SeedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEnd:
    """The state of all runs.

    Attributes:
        points: Finished grid points.
        chosen: Index of the best point; None until all are finished.
        seeds: Finished seeds at that point, in order, those of earlier calls included.
        finished: Whether all runs are done.
    """

    points: tuple[GridPoint, ...]
    chosen: int | None
    seeds: tuple[SeedResult, ...]
    finished: bool


class Study:
    """All runs of one request, and what they share."""

    def __init__(
        self,
        *,
        folder: Path,
        model: str,
        from_scratch: bool,
        data: TrainingDataMaker,
        machine: Machine,
        tokens_per_microbatch: int,
        talk: Reporter,
        checkpoint_seconds: float,
    ) -> None:
        self.folder, self.model, self.from_scratch, self.data = folder, model, from_scratch, data
        self.machine, self.tokens_per_microbatch = machine, tokens_per_microbatch
        self.talk, self.checkpoint_seconds = talk, checkpoint_seconds
        self._reported: set[str] = set()

    def build(self, task: Task[Any], settings: Hyperparameters, seed: int) -> FineTunedModel:
        """Build the model with a new head, on the CPU, and report each of its notes once."""
        built = build(
            self.model,
            task,
            seed=seed,
            max_length=settings.max_length,
            hidden_dropout=settings.hidden_dropout,
            attention_dropout=settings.attention_dropout,
            head_dropout=settings.head_dropout,
            from_scratch=self.from_scratch,
        )
        for note in built.notes:
            if note not in self._reported:
                self._reported.add(note)
                self.talk.say("model", note)
        return built

    def run(self, points: Sequence[PlannedPoint], seeds: Sequence[int], stop: StopRequest) -> StudyEnd:
        """Train everything that is not finished yet: every grid point with the first seed, the best with all seeds.

        Raises:
            TrainingError: If a loss is not finite; with a grid, only at every point or for a further seed.
        """
        done: list[GridPoint] = []
        for point in points:
            result = self._train(point, seeds[0], stop, may_fail=len(points) > 1)
            if not result.finished:
                return StudyEnd(points=tuple(done), chosen=None, seeds=(), finished=False)
            done.append(GridPoint(values=point.values, result=result))
        chosen = max(range(len(done)), key=lambda number: (done[number].result.main, -number))
        if failure := done[chosen].result.failure:
            raise TrainingError(
                f"training failed at every grid point: {failure}",
                todo="Choose lower learning rates and a new --out folder.",
            )
        if len(points) > 1:
            self.talk.say("chosen", f"{point_name(points[chosen].values)}, the best on dev with seed {seeds[0]}")
        finished = all(self._train(points[chosen], seed, stop).finished for seed in seeds[1:])
        return StudyEnd(points=tuple(done), chosen=chosen, seeds=self._trained(points[chosen]), finished=finished)

    def _trained(self, point: PlannedPoint) -> tuple[SeedResult, ...]:
        found = [read_result(folder) for folder in self._place(point).glob("seed-*")]
        whole = [result for result in found if result is not None and not result.failure]
        return tuple(sorted(whole, key=lambda result: result.seed))

    def _place(self, point: PlannedPoint) -> Path:
        return self.folder / RUNS / point_name(point.values)

    def _train(self, point: PlannedPoint, seed: int, stop: StopRequest, *, may_fail: bool = False) -> SeedResult:
        folder = self._place(point) / f"seed-{seed}"
        title = f"{point_name(point.values)} seed {seed}".strip()
        if (before := read_result(folder)) is not None:
            told = f"failed: {before.failure}" if before.failure else f"already trained ({before.main:.4g})"
            self.talk.say("finished", f"{title} {told}")
            return before
        if stop:
            return SeedResult(seed=seed, folder=folder, finished=False, steps=0, history=(), best=-1, cut={})
        model = self.build(point.task, point.settings, seed)
        folder.mkdir(parents=True, exist_ok=True)
        run = SeedRun(
            folder=folder,
            model=model.to(self.machine.device),
            data=self.data(point.task, point.settings),
            settings=point.settings,
            seed=seed,
            machine=self.machine,
            tokens_per_microbatch=self.tokens_per_microbatch,
            talk=self.talk,
            title=title,
        )
        try:
            return run.run(stop, self.checkpoint_seconds)
        except TrainingError as error:
            if not may_fail:
                raise
            self.talk.say("warning", f"{title} failed and counts as the worst: {error.problem}")
            return record_failure(folder, seed, error.problem)
