"""All runs of one request: the grid with the first seed, then every seed at the best point, then the test examples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError, TrainingError
from maskwright.core.files import read_json, write_json
from maskwright.data.progress import Progress, no_progress
from maskwright.finetuning.checks import unlabelled
from maskwright.finetuning.fine_tuned import FineTunedModel, build, load
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.labelled import Part
from maskwright.finetuning.plan import PlannedPoint, Point, point_name
from maskwright.finetuning.scoring import features_of, predict_features, write_predictions
from maskwright.finetuning.seed_run import MODEL, SeedResult, SeedRun, read_result, record_failure
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.training_data import TrainingDataMaker
from maskwright.training.device import Machine
from maskwright.training.interrupt import StopRequest
from maskwright.training.reporting import Reporter

PREDICTIONS = "test_predictions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScores:
    """What one seed's model made of the test examples.

    Attributes:
        examples: Fingerprint of the examples.
        metrics: None where they have no labels.
        num_cut: Examples that were cut to the model's length.
    """

    examples: str
    metrics: dict[str, float] | None
    num_cut: int


def measure_test(folder: Path, test: Part, machine: Machine, progress: Progress = no_progress) -> TestScores:
    """Let a finished run's model predict the test examples, unless it has predicted these very ones before.

    Writes test_predictions.jsonl and test.json.

    Args:
        folder: The run's folder.
        test: The test examples.
        machine: Where to compute, and how exactly.
        progress: Called after each forward pass with the tokens done.
    """
    record = folder / "test.json"
    fingerprint = test.fingerprint
    if record.exists():
        try:
            before = TestScores(**read_json(record))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{record} cannot be read: {error}", todo="Remove it to measure again.") from error
        if before.examples == fingerprint:
            return before
    model = load(folder / MODEL).to(machine.device)
    features = features_of(model, test.examples, training=False)
    predictions = predict_features(model, features, test.examples, progress, autocast=machine.autocast)
    write_predictions(folder / PREDICTIONS, predictions)
    metrics = None if unlabelled(test.examples) else model.task.measure(predictions, test.examples)
    scores = TestScores(examples=fingerprint, metrics=metrics, num_cut=features.num_cut)
    write_json(record, asdict(scores))
    return scores


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
        seeds: All seeds that are done at that point, in order: those asked for, and those of earlier calls.
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
        from_scratch: Whether its weights are drawn anew.
        data: Makes the features to learn from.
        machine: Device and precision.
        tokens_per_microbatch: Tokens of a forward and backward pass.
        talk: Where to report.
        checkpoint_seconds: Time between checkpoints.
    """

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
        self._told: set[str] = set()

    def build(self, task: Task[Any], settings: Hyperparameters, seed: int) -> FineTunedModel:
        """Put a fresh head on the model, on the CPU, and tell once what was taken from it and what is new."""
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
            if note not in self._told:
                self._told.add(note)
                self.talk.say("model", note)
        return built

    def run(self, points: Sequence[PlannedPoint], seeds: Sequence[int], stop: StopRequest) -> StudyEnd:
        """Train whatever is not trained yet.

        Args:
            points: The grid; one empty point without one.
            seeds: One or more; the first chooses the point.
            stop: Becomes true when the user asks to stop.

        Raises:
            TrainingError: If a loss is not finite; with a grid, only if that is so at every point or for a further
                seed.
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
                f"no point of the grid can be trained: {failure}", todo="Choose lower rates, in a new folder."
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
            told = f"broke off: {before.failure}" if before.failure else f"is trained already ({before.main:.4g})"
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
            self.talk.say("warning", f"{title} broke off and counts as the worst: {error.problem}")
            return record_failure(folder, seed, error.problem)
