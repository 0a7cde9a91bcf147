"""`maskwright.finetune`: from a pretrained model and labelled files to a measured model, in the order of events.

OUT/                      the best seed's model, a Hugging Face folder, with README.md (its card)
OUT/results.json, .md     each seed's row, mean, standard deviation, best
OUT/run.json              the request, the environment, how it ended
OUT/runs/...              a folder a seed and a point of the grid (`seed_run`)
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.files import atomic_path, read_json, write_json, write_text
from maskwright.core.spec import override, parse_overrides
from maskwright.evaluation.fine_tuned import load
from maskwright.evaluation.grid import Point, grid_points
from maskwright.evaluation.hyperparameters import (
    Hyperparameters,
    Learner,
    fit_length,
    fit_training,
    known_system,
    published,
    system_named,
)
from maskwright.evaluation.labelled import Labelled, LabelledRequest, read_labelled
from maskwright.evaluation.model_card import write_model_card
from maskwright.evaluation.results import GridRow, Results, SeedRow
from maskwright.evaluation.seed_run import MODEL
from maskwright.evaluation.study import RUNS, Study, StudyEnd
from maskwright.evaluation.testing import Tested, measure_test
from maskwright.training.device import Machine, matmul_library, prepare_machine
from maskwright.training.existing import ExistingModel, open_existing
from maskwright.training.fit import Choice
from maskwright.training.interrupt import stop_on_signals
from maskwright.training.reporting import OnConsole, Reporter
from maskwright.training.run_folder import RunFolder, environment

_TASK_FIELDS = "task."


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """A fine-tuning as it stands.

    Attributes:
        folder: Where it lies; once finished also a Hugging Face model folder.
        finished: Whether all seeds are trained (else it was interrupted and goes on with the same call).
        results: What was measured; None before it is finished.
        stopped_by: The signal that interrupted it, or None.
    """

    folder: Path
    finished: bool
    results: Results | None
    stopped_by: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "stopped_by": self.stopped_by,
            "results": None if self.results is None else self.results.to_json(),
        }


def finetune(
    model: str | Path,
    *,
    task: str,
    out: str | Path,
    data: str | Path | None = None,
    train: str | Path | Sequence[str | Path] | None = None,
    dev: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    read: Sequence[str] = (),
    seeds: int = 1,
    seed: int = 0,
    grid: Sequence[str] = (),
    set: Sequence[str] = (),
    as_published: bool = False,
    system: str | None = None,
    device: str = "auto",
    checkpoint_minutes: float = 1.0,
    reporter: Reporter | None = None,
) -> FineTuning:
    """Fine-tune a model and measure it. The same call again goes on with an interrupted one, or adds further seeds.

    Everything is chosen on the development examples: the pass whose weights are kept, the point of the grid (with the
    first seed), the best seed. The test examples are asked once, at the end.

    Args:
        model: A run's folder, a Hugging Face folder or a hub name.
        task: A benchmark ("sst-2"), or a kind of task for files of your own ("classification").
        out: The folder; new, empty, or holding this very fine-tuning.
        data: The folder of the benchmark's own files.
        train, dev, test: Files instead. Without `dev` a tenth of the training examples is held out for it.
        text, text2, label: Columns of your files; those left out are guessed, and said.
        read: Further settings of reading, "quoting=none" (fields of `evaluation.readers.ReadOptions`).
        seeds: How many seeds are trained, one after the other.
        seed: The first one.
        grid: Settings to choose from, "learning_rate=1e-4,3e-4".
        set: Settings, "learning_rate=1e-4" (fields of `Hyperparameters`), and "task.FIELD=..." of the task.
        as_published: Keep the published settings, even if the model is small or the data little.
        system: Whose published settings count; None: that of the recipe or family that the model says.
        device: "auto", "cpu", "cuda" or "cuda:N".
        checkpoint_minutes: Time between checkpoints.
        reporter: Where to talk; None for standard error.

    Raises:
        MaskwrightError: If anything the user gave cannot be honoured; nothing is lost.

    Example:
        >>> done = maskwright.finetune("runs/mine", task="classification", train="reviews.csv", out="runs/reviews")
        >>> done.results.spread("dev")["accuracy"].mean
        0.87
    """
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}", allowed="1 or more")
    pairs = parse_overrides(set)
    own = [(name, value) for name, value in pairs if not name.startswith(_TASK_FIELDS)]
    of_task = {name.removeprefix(_TASK_FIELDS): value for name, value in pairs if name.startswith(_TASK_FIELDS)}
    override(Hyperparameters(), own)  # A misspelt field is answered before anything is read.
    grid_points(grid, Hyperparameters())
    request = LabelledRequest.of(
        task=task,
        data=data,
        files={"train": train, "dev": dev, "test": test},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    folder = RunFolder(Path(out).expanduser(), work=f"{RUNS}/**/seed-*")
    with reporter or OnConsole() as talk:
        existing = open_existing(str(model))
        labelled = read_labelled(request, of_task, talk)
        plan = _plan(existing, labelled, own, grid, as_published=as_published, system=system)
        try:
            record = folder.open(plan.request)
            machine = prepare_machine(device, record.get("machine", {}).get("matmul"))
            with matmul_library(machine.matmul):
                return _sit(plan, folder, record, machine, range(seed, seed + seeds), checkpoint_minutes, talk)
        finally:
            folder.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be done, decided.

    Attributes:
        existing: The pretrained model.
        labelled: Task and examples.
        settings: Of all trainings but for what a point of the grid changes.
        points: The grid.
        choices: What was fitted, and why.
        source: Where the published settings stand.
        system: Whose they are.
    """

    existing: ExistingModel
    labelled: Labelled
    settings: Hyperparameters
    points: tuple[Point, ...]
    choices: tuple[Choice, ...]
    source: str
    system: str

    @property
    def request(self) -> dict[str, Any]:
        """What must be the same for a folder to be gone on with. Seeds may be added."""
        fields = self.settings.model_dump(mode="json")
        return {
            "model": self.existing.fingerprint,
            "task": self.labelled.task.to_json(),
            "data": {
                name: f"{len(part.examples):,} examples ({part.fingerprint})"
                for name, part in self.labelled.parts.items()
            },
            "settings": {name: value for name, value in fields.items() if name not in self.points[0]},
        }


def _plan(
    existing: ExistingModel,
    labelled: Labelled,
    own: Sequence[tuple[str, Any]],
    grid: Sequence[str],
    *,
    as_published: bool,
    system: str | None,
) -> _Plan:
    learner = Learner(
        family=existing.family,
        system=system_named(system) if system else known_system(_recipe_of(existing), existing.family),
        config=existing.config,
        max_length=existing.max_length,
        tokens=_tokens_of(existing),
    )
    base, source = published(learner.system, labelled.task.head, labelled.benchmark, learner.config)
    settings = override(base, own)
    points = grid_points(grid, settings)
    fixed = {name for name, _ in own} | points[0].keys()
    settings, choices = fit_length(settings, learner, fixed)
    if not as_published:
        num_units = len(labelled.train.examples) * (2 if settings.both_orders else 1)
        settings, more = fit_training(settings, learner, num_units, fixed)
        choices += more
    return _Plan(
        existing=existing,
        labelled=labelled,
        settings=settings,
        points=tuple(points),
        choices=choices,
        source=source,
        system=learner.system,
    )


def _recipe_of(existing: ExistingModel) -> str:
    """Return the name of the recipe or system that a model's folder tells; "" where it does not."""
    told = (_told(existing, "recipe.json", "name"), _told(existing, "run.json", "system"))
    return next((name for name in told if isinstance(name, str) and name), "")


def _tokens_of(existing: ExistingModel) -> float | None:
    """Return how many tokens a model was pretrained on, where its folder is a run that says so."""
    tokens = _told(existing, "run.json", "result", "tokens")
    begun_with = _told(existing, "run.json", "begun_with")
    # A run that went on from another model has seen more than it counts.
    return float(tokens) if isinstance(tokens, int | float) and tokens and not begun_with else None


def _told(existing: ExistingModel, file: str, *keys: str) -> Any:
    """Return an entry of a JSON file beside a model; None where there is none."""
    try:
        found = read_json(existing.folder / file)
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found


def _sit(
    plan: _Plan,
    folder: RunFolder,
    record: dict[str, Any],
    machine: Machine,
    seeds: Sequence[int],
    checkpoint_minutes: float,
    talk: Reporter,
) -> FineTuning:
    labelled, settings = plan.labelled, plan.settings
    if plan.choices:
        rows = [(choice.field, *choice.shown(), choice.reason) for choice in plan.choices]
        talk.tabulate("fitted", ("to the model", "published", "here", "because"), rows)
    study = Study(
        folder=folder.path,
        model=plan.existing.name,
        task=labelled.task,
        train=labelled.train.examples,
        dev=labelled.dev.examples,
        machine=machine,
        talk=talk,
        checkpoint_seconds=checkpoint_minutes * 60,
    )
    begun = {
        **record,
        "system": plan.system,
        "settings_from": plan.source,
        "fitted": [choice.to_json() for choice in plan.choices],
        "machine": {"name": machine.name, "device": str(machine.device), "matmul": machine.matmul},
        "environment": environment(),
    }
    folder.write_record(begun)
    talk.say(
        "plan",
        f"{labelled.name} with {plan.existing.name} into {folder.path}: "
        f"{_how_long(settings)} of {settings.batch_size} examples a step, "
        f"peak learning rate {settings.learning_rate:g}, up to {settings.max_length} tokens; the rest in "
        f"{folder.path / 'run.json'} ({plan.source})",
    )
    with stop_on_signals() as stop:
        end = study.run(settings, plan.points, seeds, stop)
        if not end.finished:
            return FineTuning(folder=folder.path, finished=False, results=None, stopped_by=stop.signal)
        results = _collect(plan, end, machine)
        _keep(folder.path, end, results)
    folder.write_record({**begun, "finished": True, "best_seed": results.best.seed})
    return FineTuning(folder=folder.path, finished=True, results=results, stopped_by=None)


def _how_long(settings: Hyperparameters) -> str:
    if settings.steps is not None:
        return f"{settings.steps:,} steps"
    return f"{settings.epochs:g} epoch{'s' * (settings.epochs != 1)}"


def _collect(plan: _Plan, end: StudyEnd, machine: Machine) -> Results:
    """Measure on the test examples, now that all is chosen, and put everything together."""
    labelled = plan.labelled
    assert end.chosen is not None
    settings = plan.settings.replace(**end.points[end.chosen].values)
    tested: list[Tested | None] = [
        None if labelled.test is None else measure_test(run.folder, labelled.test.examples, machine)
        for run in end.seeds
    ]
    cut = {**end.seeds[0].cut, **({} if tested[0] is None else {"test": tested[0].num_cut})}
    return Results(
        task=labelled.name,
        kind=labelled.task.kind,
        model=plan.existing.name,
        data={
            name: {"name": part.name, "examples": len(part.examples), "skipped": part.skipped, "cut": cut[name]}
            for name, part in labelled.parts.items()
        },
        settings=settings.model_dump(mode="json"),
        rows=tuple(
            SeedRow(
                seed=run.seed,
                steps=run.steps,
                best_epoch=run.chosen.epoch,
                dev=run.chosen.metrics,
                test=None if its_test is None else its_test.metrics,
            )
            for run, its_test in zip(end.seeds, tested, strict=True)
        ),
        grid=tuple(
            GridRow(values=point.values, dev=point.result.chosen.main, chosen=number == end.chosen)
            for number, point in enumerate(end.points)
        )
        if len(end.points) > 1
        else (),
        notes=labelled.notes,
    )


def _keep(folder: Path, end: StudyEnd, results: Results) -> None:
    """Write the results, and make the best seed's model the folder's own."""
    best = next(run for run in end.seeds if run.seed == results.best.seed)
    for file in sorted((best.folder / MODEL).iterdir()):
        _copy(file, folder / file.name)
    write_json(folder / "results.json", results.to_json())
    write_text(folder / "results.md", results.markdown())
    write_model_card(folder, load(folder), results)


def _copy(file: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(file, temporary)
