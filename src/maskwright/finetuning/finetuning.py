"""`maskwright.finetune`: from a pretrained model and labeled files to an evaluated model.

OUT/                      the best seed's model, a Hugging Face folder, with README.md (its model card)
OUT/results.json, .md     one row per seed, mean, standard deviation, best
OUT/run.json              the request, the environment, whether it finished
OUT/runs/...              one folder per grid point and seed (`seed_run`)
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.core.devices import choose_device
from maskwright.core.errors import CheckpointError, RecipeError
from maskwright.core.files import atomic_path, check_writable, write_json, write_text
from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning.fine_tuned import load
from maskwright.finetuning.hyperparameters import Hyperparameters, published_task_fields
from maskwright.finetuning.labeled import LabeledRequest, read_labeled, save_read_as
from maskwright.finetuning.plan import Plan, grid_points, make_plan, system_of
from maskwright.finetuning.readers import ReadAs
from maskwright.finetuning.results import GridRow, Results, SeedRow, write_model_card
from maskwright.finetuning.seed_run import MODEL
from maskwright.finetuning.study import RUNS, Study, StudyEnd, TestScores, measure_test
from maskwright.finetuning.tasks import KINDS
from maskwright.training.device import Machine, Precision, computing_on, prepare_machine_again
from maskwright.training.existing import ExistingModel, open_existing
from maskwright.training.interrupt import StopRequest, stop_on_signals
from maskwright.training.reporting import OnConsole, Reporter
from maskwright.training.run_directory import RunDirectory, environment

_TASK_FIELDS = "task."
_WRITTEN_AT_END = ("finished", "best_seed")
_NOT_SET = ("kind", "labels", "metrics", "null_threshold")
"""Task fields that follow from the data, are shown elsewhere, or are tuned by each seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """The state of a fine-tuning.

    Attributes:
        folder: Its directory; once finished also a Hugging Face model folder.
        finished: Whether all seeds are trained. If not, the same call resumes.
        results: None before it is finished.
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
    from_scratch: bool = False,
    system: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    checkpoint_minutes: float = 1.0,
    reporter: Reporter | None = None,
) -> FineTuning:
    """Fine-tune a model and evaluate it. The same call resumes an interrupted run, or adds seeds.

    Everything is selected on the development examples: the epoch whose weights are kept, the grid point (with the first
    seed), the best seed. The test examples are predicted once, at the end.

    Args:
        model: A run's folder, a Hugging Face folder or a hub name.
        task: A benchmark ("sst-2"), or a kind of task for your own files ("classification").
        out: Output folder: new, empty, or of this same fine-tuning.
        data: The folder with the benchmark's files.
        train, dev, test: Files instead. Without `dev` a tenth of the training examples is held out.
        text, text2, label: Columns of your files; the others are guessed and reported.
        read: Further read options, "quoting=none" (fields of `finetuning.readers.ReadOptions`).
        seeds: Number of seeds, trained one after the other.
        seed: The first seed.
        grid: Settings to search, "learning_rate=1e-4,3e-4".
        set: Settings, "learning_rate=1e-4" (fields of `Hyperparameters`), and "task.FIELD=..." of the task.
        as_published: Keep the published settings even for small models or little data. Sequences are still no longer
            than in pretraining.
        from_scratch: Initialize all weights at random and keep only the model's shape and tokenizer, as a baseline that
            shows what pretraining contributes.
        system: The system whose published settings are used; None: the model's recipe or family.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "fp32", "bf16" (autocast; weights and losses stay fp32), or "auto": bf16 on a GPU that supports it.
            Evaluation uses it too.
        checkpoint_minutes: Time between checkpoints.
        reporter: Receives messages; None for standard error.

    Raises:
        MaskwrightError: If an argument is invalid. Existing files are kept.

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
    override(Hyperparameters(), own)  # Report misspelled fields before reading files.
    grid_points(grid, Hyperparameters())
    request = LabeledRequest.of(
        task=task,
        data=data,
        files={"train": train, "dev": dev, "test": test},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    choose_device(device)
    check_writable(Path(out).expanduser())
    folder = RunDirectory(Path(out).expanduser(), work="fine-tuning", kept=f"{RUNS}/**/seed-*")
    with reporter or OnConsole() as talk:
        existing = open_existing(str(model))
        _refuse_the_model(existing, folder.path)
        its_system = system_of(existing, system)
        head = KINDS[request.kind].head
        own_of_task = of_task.keys()
        of_task = {**published_task_fields(its_system, head, request.benchmark, existing.config), **of_task}
        labeled = read_labeled(request, of_task, talk)
        plan = make_plan(
            existing,
            labeled,
            own,
            grid,
            system=its_system,
            as_published=as_published,
            from_scratch=from_scratch,
            own_of_task=own_of_task,
            precision=precision,
        )
        try:
            record = folder.open(plan.request)
            machine, message = prepare_machine_again(record.get("machine", {}), device, None, precision)
            if message:
                talk.say("kernels", message)
            with computing_on(machine):
                return _run_session(plan, folder, record, machine, range(seed, seed + seeds), checkpoint_minutes, talk)
        finally:
            folder.close()


def _refuse_the_model(existing: ExistingModel, out: Path) -> None:
    if out.resolve() == existing.folder.resolve():
        raise CheckpointError(
            f"{out} is the model to fine-tune; it would be overwritten",
            todo="Choose another --out.",
        )


def _run_session(
    plan: Plan,
    folder: RunDirectory,
    record: dict[str, Any],
    machine: Machine,
    seeds: Sequence[int],
    checkpoint_minutes: float,
    talk: Reporter,
) -> FineTuning:
    labeled, first = plan.labeled, plan.points[0].settings
    if plan.choices:
        rows = [(choice.field, *choice.shown(), choice.reason) for choice in plan.choices]
        talk.tabulate("fitted", ("setting", "published", "here", "because"), rows)
    tokens_per_microbatch = _tokens_per_microbatch(record, machine, plan.existing.config.hidden_size)
    study = Study(
        folder=folder.path,
        model=plan.existing.name,
        from_scratch=plan.from_scratch,
        data=plan.data,
        machine=machine,
        tokens_per_microbatch=tokens_per_microbatch,
        talk=talk,
        checkpoint_seconds=checkpoint_minutes * 60,
    )
    begun = {
        **{name: value for name, value in record.items() if name not in _WRITTEN_AT_END},
        "system": plan.system,
        "settings_from": plan.source,
        "fitted": [choice.to_json() for choice in plan.choices],
        "machine": {
            **machine.to_json(),
            # As in the first session, so that a later one can use it again.
            "kernels": record.get("machine", {}).get("kernels", machine.kernels),
            "tokens_per_microbatch": tokens_per_microbatch,
        },
        "environment": environment(),
    }
    folder.write_record(begun)
    scratch = " from scratch" if plan.from_scratch else ""
    talk.say(
        "plan",
        f"{labeled.name} with {plan.existing.name}{scratch} into {folder.path}: "
        f"{_how_long(first)}, batch size {first.batch_size}, "
        f"peak learning rate {first.learning_rate:g}, up to {first.max_length} tokens"
        f"{', in bf16' if machine.precision == 'bf16' else ''}; all settings in "
        f"{folder.path / 'run.json'} ({plan.source})",
    )
    with stop_on_signals() as stop:
        end = study.run(plan.points, seeds, stop)
        results = _collect(plan, end, machine, stop, talk) if end.finished else None
        if results is None:
            return FineTuning(folder=folder.path, finished=False, results=None, stopped_by=stop.signal)
        _keep(folder.path, end, results, labeled.read_as)
    folder.write_record({**begun, "finished": True, "best_seed": results.best.seed})
    return FineTuning(folder=folder.path, finished=True, results=results, stopped_by=None)


def _tokens_per_microbatch(record: dict[str, Any], machine: Machine, hidden_size: int) -> int:
    """Return the tokens of a micro-batch: as in the run's first session, since dropout masks depend on it."""
    before = record.get("machine", {})
    same_kind = str(before.get("device", "")).partition(":")[0] == machine.device.type
    found: int = before.get("tokens_per_microbatch", 0) if same_kind else 0
    return found or machine.tokens_per_microbatch(hidden_size)


def _how_long(settings: Hyperparameters) -> str:
    if settings.steps is not None:
        return f"{settings.steps:,} steps"
    return f"{settings.epochs:g} epoch{'s' * (settings.epochs != 1)}"


def _collect(plan: Plan, end: StudyEnd, machine: Machine, stop: StopRequest, talk: Reporter) -> Results | None:
    """Predict the test examples and collect all results; None if a stop was requested."""
    labeled = plan.labeled
    assert end.chosen is not None
    tested: list[TestScores | None] = []
    for run in end.seeds:
        if stop:
            return None
        tested.append(None if labeled.test is None else measure_test(run.folder, labeled.test, machine, talk.stage))
    cut = {**end.seeds[0].cut, **({} if tested[0] is None else {"test": tested[0].num_cut})}
    sizes = {name: len(part.examples) for name, part in labeled.parts.items()}
    if told := [f"{cut[name]:,} of {size:,} {name}" for name, size in sizes.items() if cut[name]]:
        talk.say("cut", f"{', '.join(told)} examples truncated to {plan.points[end.chosen].settings.max_length} tokens")
    return Results(
        task=labeled.name,
        kind=labeled.task.kind,
        model=plan.existing.name,
        from_scratch=plan.from_scratch,
        data={
            name: {"name": part.name, "examples": len(part.examples), "skipped": part.skipped, "cut": cut[name]}
            for name, part in labeled.parts.items()
        },
        settings=plan.points[end.chosen].settings.model_dump(mode="json"),
        task_settings={
            name: value for name, value in plan.points[end.chosen].task.to_json().items() if name not in _NOT_SET
        },
        pairs=any(len(getattr(example, "texts", ())) == 2 for example in labeled.train.examples),
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
            GridRow(
                values=point.values,
                dev=None if point.result.failure else point.result.chosen.main,
                chosen=number == end.chosen,
            )
            for number, point in enumerate(end.points)
        )
        if len(end.points) > 1
        else (),
        notes=labeled.notes,
        precision=machine.precision,
    )


def _keep(folder: Path, end: StudyEnd, results: Results, read_as: ReadAs) -> None:
    """Write the results, and copy the best seed's model into the output folder."""
    best = next(run for run in end.seeds if run.seed == results.best.seed)
    for file in sorted((best.folder / MODEL).iterdir()):
        _copy(file, folder / file.name)
    write_json(folder / "results.json", results.to_json())
    write_text(folder / "results.md", results.markdown())
    save_read_as(folder, read_as)
    write_model_card(folder, load(folder), results, read_as)


def _copy(file: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(file, temporary)
