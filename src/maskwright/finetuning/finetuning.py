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

from maskwright.core.devices import choose_device
from maskwright.core.errors import CheckpointError, RecipeError
from maskwright.core.files import atomic_path, check_writable, write_json, write_text
from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning.fine_tuned import load
from maskwright.finetuning.hyperparameters import Hyperparameters, published_task_fields
from maskwright.finetuning.labelled import LabelledRequest, read_labelled
from maskwright.finetuning.plan import Plan, grid_points, make_plan, system_of
from maskwright.finetuning.readers import ReadAs
from maskwright.finetuning.reading import save_read_as
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
_OF_THE_END = ("finished", "best_seed")
_NOT_SET = ("kind", "labels", "metrics", "null_threshold")
"""Of a task: what the data say, what is shown, and what each seed chooses itself."""


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
    from_scratch: bool = False,
    system: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
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
        as_published: Keep the published settings, even if the model is small or the data little. Sequences are still
            no longer than those that the model was trained on.
        from_scratch: Draw all weights anew, and keep the model's shape and tokenizer only: what pretraining is worth is
            seen beside it.
        system: Whose published settings count; None: that of the recipe or family that the model says.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "fp32", "bf16" for matrix products (weights, sums and losses stay fp32), or "auto": bf16 on a GPU
            that has it. Development and test examples are scored in it too.
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
        labelled = read_labelled(request, of_task, talk)
        plan = make_plan(
            existing,
            labelled,
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
            machine, said = prepare_machine_again(record.get("machine", {}), device, None, precision)
            if said:
                talk.say("kernels", said)
            with computing_on(machine):
                return _sit(plan, folder, record, machine, range(seed, seed + seeds), checkpoint_minutes, talk)
        finally:
            folder.close()


def _refuse_the_model(existing: ExistingModel, out: Path) -> None:
    if out.resolve() == existing.folder.resolve():
        raise CheckpointError(
            f"{out} is the model that is to be fine-tuned, and it would be written over",
            todo="Choose another --out.",
        )


def _sit(
    plan: Plan,
    folder: RunDirectory,
    record: dict[str, Any],
    machine: Machine,
    seeds: Sequence[int],
    checkpoint_minutes: float,
    talk: Reporter,
) -> FineTuning:
    labelled, first = plan.labelled, plan.points[0].settings
    if plan.choices:
        rows = [(choice.field, *choice.shown(), choice.reason) for choice in plan.choices]
        talk.tabulate("fitted", ("to the model", "published", "here", "because"), rows)
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
        **{name: value for name, value in record.items() if name not in _OF_THE_END},
        "system": plan.system,
        "settings_from": plan.source,
        "fitted": [choice.to_json() for choice in plan.choices],
        "machine": {
            **machine.to_json(),
            # What it began with: another sitting may have it again.
            "kernels": record.get("machine", {}).get("kernels", machine.kernels),
            "tokens_per_microbatch": tokens_per_microbatch,
        },
        "environment": environment(),
    }
    folder.write_record(begun)
    scratch = ", from weights drawn anew" if plan.from_scratch else ""
    talk.say(
        "plan",
        f"{labelled.name} with {plan.existing.name}{scratch} into {folder.path}: "
        f"{_how_long(first)} of {first.batch_size} examples a step, "
        f"peak learning rate {first.learning_rate:g}, up to {first.max_length} tokens"
        f"{', in bf16' if machine.precision == 'bf16' else ''}; the rest in "
        f"{folder.path / 'run.json'} ({plan.source})",
    )
    with stop_on_signals() as stop:
        end = study.run(plan.points, seeds, stop)
        results = _collect(plan, end, machine, stop, talk) if end.finished else None
        if results is None:
            return FineTuning(folder=folder.path, finished=False, results=None, stopped_by=stop.signal)
        _keep(folder.path, end, results, labelled.read_as)
    folder.write_record({**begun, "finished": True, "best_seed": results.best.seed})
    return FineTuning(folder=folder.path, finished=True, results=results, stopped_by=None)


def _tokens_per_microbatch(record: dict[str, Any], machine: Machine, hidden_size: int) -> int:
    """Return what a forward and backward pass holds: the number that the folder was begun with.

    A GPU's depends on its memory, and the masks of dropout depend on it.
    """
    before = record.get("machine", {})
    same_kind = str(before.get("device", "")).partition(":")[0] == machine.device.type
    found: int = before.get("tokens_per_microbatch", 0) if same_kind else 0
    return found or machine.tokens_per_microbatch(hidden_size)


def _how_long(settings: Hyperparameters) -> str:
    if settings.steps is not None:
        return f"{settings.steps:,} steps"
    return f"{settings.epochs:g} epoch{'s' * (settings.epochs != 1)}"


def _collect(plan: Plan, end: StudyEnd, machine: Machine, stop: StopRequest, talk: Reporter) -> Results | None:
    """Measure on the test examples, now that all is chosen, and put everything together; None if asked to stop."""
    labelled = plan.labelled
    assert end.chosen is not None
    tested: list[TestScores | None] = []
    for run in end.seeds:
        if stop:
            return None
        tested.append(None if labelled.test is None else measure_test(run.folder, labelled.test, machine, talk.stage))
    cut = {**end.seeds[0].cut, **({} if tested[0] is None else {"test": tested[0].num_cut})}
    sizes = {name: len(part.examples) for name, part in labelled.parts.items()}
    if told := [f"{cut[name]:,} of {size:,} {name}" for name, size in sizes.items() if cut[name]]:
        talk.say("cut", f"{', '.join(told)} examples, to {plan.points[end.chosen].settings.max_length} tokens")
    return Results(
        task=labelled.name,
        kind=labelled.task.kind,
        model=plan.existing.name,
        from_scratch=plan.from_scratch,
        data={
            name: {"name": part.name, "examples": len(part.examples), "skipped": part.skipped, "cut": cut[name]}
            for name, part in labelled.parts.items()
        },
        settings=plan.points[end.chosen].settings.model_dump(mode="json"),
        task_settings={
            name: value for name, value in plan.points[end.chosen].task.to_json().items() if name not in _NOT_SET
        },
        pairs=any(len(getattr(example, "texts", ())) == 2 for example in labelled.train.examples),
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
        notes=labelled.notes,
        precision=machine.precision,
    )


def _keep(folder: Path, end: StudyEnd, results: Results, read_as: ReadAs) -> None:
    """Write the results, and make the best seed's model the folder's own."""
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
