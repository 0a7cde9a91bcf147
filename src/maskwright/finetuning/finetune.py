"""`maskwright.finetune`: from a pretrained model and labeled files to an evaluated model.

OUT/                      the best seed's model, a Hugging Face folder, with README.md (its model card)
OUT/results.json, .md     one row per seed, mean, standard deviation, best
OUT/baselines.json        scores of the baselines, and of which examples
OUT/run.json              the request, the environment, whether it finished
OUT/runs/seed-N/          one folder per seed (`seed_run`)
OUT/runs/trials.json      with `--search`: the trials; trial-N/ are their runs (`search`)
"""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maskwright.checkpoints.card_facts import read_card_facts
from maskwright.checkpoints.checkpoint import Checkpoint
from maskwright.core.errors import CheckpointError, DataError, DivergenceError, RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.core.storage.checksums import compare_files, damaged_files, read_record, write_record
from maskwright.core.storage.files import atomic_path, check_writable, checksum
from maskwright.data.tokenizers.tokenizer import MANY_UNKNOWN
from maskwright.finetuning.baselines import frozen_vectors, measure_baselines
from maskwright.finetuning.embedding.training import finetune_embedding
from maskwright.finetuning.evaluate import predict_examples
from maskwright.finetuning.examples import ExampleFile, has_labels
from maskwright.finetuning.features import Layout
from maskwright.finetuning.hyperparameters import (
    Hyperparameters,
    fit_length,
    fit_length_to_texts,
    fit_stride,
    fit_training,
    published,
    system_of,
    tokens_of,
)
from maskwright.finetuning.labeled import LabeledData, LabeledRequest, read_labeled, report_truncated
from maskwright.finetuning.model.fine_tuned import build, load
from maskwright.finetuning.negatives import NegativeMiner
from maskwright.finetuning.predictions import write_predictions
from maskwright.finetuning.published.benchmarks import BENCHMARKS
from maskwright.finetuning.readers import Data
from maskwright.finetuning.results import FineTuning, Metrics, Results, SeedRow, data_of, model_card, write_results
from maskwright.finetuning.search import SettingsSearch, check_search
from maskwright.finetuning.seed_run import (
    MODEL,
    SeedResult,
    SeedRun,
    TrainingData,
    read_result,
    remove_unfinished,
    sequence_lengths,
    training_data,
)
from maskwright.finetuning.tasks import KINDS
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.texts import Classification, TextTask
from maskwright.fitting.rules import Choice, report_fitted
from maskwright.inference.batches import TextEncoder
from maskwright.inference.long_texts import IGNORED
from maskwright.machine.devices import choose_device
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.trackers import choose_trackers
from maskwright.training.ranks.device import Machine, Precision, restore_machine, use_machine
from maskwright.training.ranks.distributed import (
    broadcast_object,
    microbatch_multiple,
    on_rank_zero,
    process_group,
    rank,
    rank_zero_first,
    world_size,
)
from maskwright.training.ranks.interrupt import StopRequest, stop_on_signals
from maskwright.training.runs.run_directory import RunDirectory, environment
from maskwright.training.runs.session import open_session
from maskwright.training.start.existing import open_existing

RUNS = "runs"
"""Sub-folder of all runs."""
PREDICTIONS = "test_predictions.jsonl"
_TASK_FIELDS = "task."
_DROPOUTS = ("hidden_dropout", "attention_dropout", "head_dropout")
_WRITTEN_AT_END = ("finished", "best_seed")
_NOT_SET = ("kind", "labels", "metrics", "null_threshold")
"""Task fields that follow from the data, are shown elsewhere, or are tuned by each seed."""


@process_group()
def finetune(
    model: str | Path,
    *,
    task: str,
    out: str | Path,
    data: str | Path | None = None,
    train: Data | None = None,
    dev: Data | None = None,
    test: Data | None = None,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    read: Sequence[str] = (),
    seeds: int = 1,
    seed: int = 0,
    set: Sequence[str] = (),
    dimensions: Sequence[int] = (),
    search: int = 0,
    as_published: bool = False,
    from_scratch: bool = False,
    system: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    checkpoint_minutes: float = 1.0,
    report_to: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> FineTuning:
    """Fine-tune a model and evaluate it. The same call resumes an interrupted run, or adds seeds.

    Everything is selected on the development examples: the epoch whose weights are kept, and the best seed. The test
    examples are predicted once, at the end.

    Args:
        model: A run directory, or a Hugging Face model directory or hub name.
        task: A benchmark (sst-2, squad-1.1, ...), or a task type for your own files: classification, regression,
            multi-label, reranking, tagging, question-answering, multiple-choice, embedding (by sentence-transformers).
        out: Output directory: new, empty, or of this same fine-tuning, which resumes.
        data: Directory of the benchmark's files; with the task embedding those of STS-B.
        train: Training file (CSV, TSV, JSONL, ...). In Python `train`, `dev` and `test` may also be tables: a
            DataFrame, a Hugging Face Dataset, or a list of dictionaries.
        dev: Validation file for model selection. Default: a tenth of the training examples is held out.
        test: Test file, evaluated once at the end.
        text: Column of the text (words, question). Default: guessed from the header, and reported.
        text2: Column of the second text (context).
        label: Column of the label (tags, answers). Default: guessed from the header, and reported.
        read: Option for reading files, e.g. `quoting=none`, `encoding=gb18030`. In Python: fields of
            `finetuning.readers.options.ReadOptions`.
        seeds: Number of seeds to train with, one after the other.
        seed: The first seed.
        set: Override a hyperparameter, e.g. `epochs=5`, `learning_rate=1e-4`, or of a field of the task,
            `task.FIELD=VALUE`.
        dimensions: Sizes to which the embeddings may be truncated, with the task embedding (256,128,64).
        search: Number of trials of a search over learning rate and epochs on the development examples, by Optuna; the
            seeds are then trained with the best ones.
        as_published: Keep the published hyperparameters, even for small models and data. Sequences are still no longer
            than in pretraining.
        from_scratch: Train from random weights, as a baseline; keeps the model's shape and tokenizer.
        system: System whose published hyperparameters are used (macbert, spanbert, ...). Default: the model's own.
        device, checkpoint_minutes, reporter: As for `pretrain`.
        precision: As for `pretrain`. Evaluation uses it too.
        report_to: Trackers that show the metrics of each seed: tensorboard, wandb, mlflow, trackio. Default: none.

    Raises:
        MaskwrightError: If an argument is invalid. Existing files are kept.

    Example:
        >>> done = maskwright.finetune("runs/mine", task="classification", train="reviews.csv", out="runs/reviews")
        >>> done.results.spread("dev")["accuracy"].mean
        0.87
    """
    trackers = choose_trackers(report_to)
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}", allowed="1 or more")
    request = LabeledRequest.of(
        task=task,
        data=data,
        files={"train": train, "dev": dev, "test": test},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    if request.kind == "embedding":
        if world_size() > 1:
            raise RecipeError("--task embedding trains with one process", hint="Start it without torchrun.")
        without_effect = {"--seeds": seeds > 1, "--from-scratch": from_scratch, "--system": system, "--search": search}
        if refused := [option for option, value in without_effect.items() if value]:
            raise RecipeError(f"{refused[0]} has no effect with --task {task}", hint="Leave it out.")
        return finetune_embedding(
            model,
            request,
            out=Path(out).expanduser(),
            seed=seed,
            set=(*set, *([f"dimensions=[{','.join(map(str, dimensions))}]"] if dimensions else [])),
            as_published=as_published,
            device=device,
            precision=precision,
            checkpoint_minutes=checkpoint_minutes,
            trackers=trackers,
            reporter=reporter,
        )
    if dimensions:
        raise RecipeError(f"--dimensions has no effect with --task {task}", hint="Leave it out.")
    overrides, of_task = _split_overrides(set)
    # Report misspelled fields before reading files.
    if override(Hyperparameters(), overrides).frozen and from_scratch:
        raise RecipeError(
            "frozen=true with --from-scratch would train a head on random vectors", hint="Leave out one of them."
        )
    fixed = {name for name, _ in overrides}
    if search:
        check_search(search, fixed)
    choose_device(device)
    check_writable(Path(out).expanduser())
    defaults = Hyperparameters().model_dump(mode="json")
    folder = RunDirectory(Path(out).expanduser(), work="fine-tuning", resumable=f"{RUNS}/*", defaults=defaults)
    with (reporter or ConsoleReporter()) if rank() == 0 else Reporter() as reporter:
        existing = open_existing(str(model))
        folder.refuse_model(existing.folder)
        plan = make_plan(
            existing,
            request,
            reporter,
            overrides=overrides,
            of_task=of_task,
            system=system,
            as_published=as_published,
            from_scratch=from_scratch,
            device=device,
        )
        request_now = {
            **plan.request,
            **({} if precision == "auto" else {"precision": precision}),
            **({"search": search, "seed": seed} if search else {}),
        }
        with open_session(folder, request_now, reporter) as (record, _):
            record.pop("problem", None)
            with rank_zero_first():  # The choice of a matmul library is measured once and cached.
                machine, message = restore_machine(record.get("machine", {}), device, None, precision)
            if message:
                reporter.message("kernels", message)
            with use_machine(machine), stop_on_signals() as stop:
                work = _FineTuningRun(folder, plan, record, machine, checkpoint_minutes * 60, reporter, stop, trackers)
                if search:
                    kept = {*fixed, *(["patience"] if as_published else [])}
                    work.search = SettingsSearch(
                        folder.path / RUNS, plan.settings, trials=search, fixed=kept, seed=seed
                    )
                results = work.run(range(seed, seed + seeds))
    return FineTuning(folder=folder.path, finished=results is not None, results=results, stopped_by=stop.signal)


def check_task(task: str, path: Path | None, set: Sequence[str]) -> None:
    """Raise MaskwrightError as `finetune` would for a task's data and settings, as far as no model is needed.

    Not for sentence embeddings.
    """
    is_folder = task in BENCHMARKS
    request = LabeledRequest.of(
        task=task, data=path if is_folder else None, files={} if is_folder else {"train": path}, columns={}
    )
    overrides, of_task = _split_overrides(set)
    override(Hyperparameters(), overrides)
    if request.kind == "reranking":  # The model chooses negatives.
        request.read("train", Reporter())
    else:
        read_labeled(request, of_task, Reporter())


def _split_overrides(set: Sequence[str]) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Return the overrides of hyperparameters, and of the task's fields."""
    pairs = parse_overrides(set)
    of_task = {name.removeprefix(_TASK_FIELDS): value for name, value in pairs if name.startswith(_TASK_FIELDS)}
    return [(name, value) for name, value in pairs if not name.startswith(_TASK_FIELDS)], of_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned fine-tuning: `choices` are adjusted settings with reasons, `source` is that of the published ones."""

    existing: Checkpoint
    from_scratch: bool
    labeled: LabeledData
    settings: Hyperparameters
    task: Task
    data: TrainingData
    choices: tuple[Choice, ...]
    source: str
    system: str

    @property
    def request(self) -> dict[str, Any]:
        """Arguments that must be equal to resume a run.

        Seeds may be added and test examples may change: nothing is selected by them.
        """
        return {
            "model": self.existing.fingerprint,
            "from_scratch": self.from_scratch,
            "task": self.task.to_json(),
            "data": {
                name: f"{len(part.examples):,} examples ({part.fingerprint})"
                for name, part in self.labeled.parts.items()
                if name != "test"
            },
            "settings": self.settings.model_dump(mode="json"),
        }


def make_plan(
    existing: Checkpoint,
    request: LabeledRequest,
    reporter: Reporter,
    *,
    overrides: Sequence[tuple[str, Any]] = (),
    of_task: Mapping[str, Any] = MappingProxyType({}),
    system: str | None = None,
    as_published: bool = False,
    from_scratch: bool = False,
    device: str = "cpu",
) -> Plan:
    """Read the files and settle all settings; `overrides` and `of_task` are the fields that the user set."""
    system = system_of(existing, system)
    _ = existing.modules  # A damaged file is an error before training; the baselines pool as it says.
    base, task_fields, source = published(system, KINDS[request.kind].head, request.benchmark, existing.config)
    miner = NegativeMiner(existing, device, reporter)
    labeled = read_labeled(request, {**task_fields, **of_task}, reporter, miner)
    train, dev = (labeled.parts[name].examples for name in ("train", "dev"))
    fixed = {name for name, _ in overrides}
    settings, choices = fit_length(override(base, overrides), existing.max_length, fixed)
    published_targets = () if labeled.benchmark is None else ("offset", "scale")
    task, more = labeled.task.fitted(train, {*of_task, *published_targets})
    choices += more
    if isinstance(task, QuestionAnswering):
        task, more = fit_stride(task, base.max_length, settings.max_length, of_task.keys())
        choices += more
    if not (as_published or labeled.benchmark or isinstance(task, QuestionAnswering)):
        lengths = sequence_lengths(existing, task, train)
        settings, more = fit_length_to_texts(settings, lengths, existing.max_length, fixed)
        choices += more
    data = training_data(existing, task, settings, train, dev)
    if (unknown := float((data.train.ids == existing.tokenizer.special_tokens.unk).mean())) > MANY_UNKNOWN:
        reporter.message(
            "warning",
            f"{unknown:.0%} of the training texts' tokens are unknown to the model's tokenizer; choose a model of this "
            "language and script",
        )
    if not as_published:
        settings, more = fit_training(
            settings,
            data.train.num_units,
            fixed,
            width=existing.config.hidden_size,
            system=system,
            pretraining_tokens=0.0 if from_scratch else tokens_of(existing),
            num_classes=len(task.labels) if isinstance(task, Classification) else 0,
        )
        choices += more
    return Plan(
        existing=existing,
        from_scratch=from_scratch,
        labeled=labeled,
        settings=settings,
        task=task,
        data=data,
        choices=choices,
        source=source,
        system=system,
    )


@dataclass
class _FineTuningRun:
    """All runs of one request: every seed, then the test set.

    `record` is the content of run.json; `run` sets what dropout masks depend on; `reported` are the notes so far.
    """

    folder: RunDirectory
    plan: Plan
    record: dict[str, Any]
    machine: Machine
    checkpoint_seconds: float
    reporter: Reporter
    stop: StopRequest
    trackers: Sequence[str] = ()
    search: SettingsSearch | None = None
    tokens_per_microbatch: int = 0
    ranks: int = 1
    reported: set[str] = field(default_factory=set)

    def run(self, seeds: Sequence[int]) -> Results | None:
        """Do all that is not done yet; None if a stop was requested."""
        plan, machine, before = self.plan, self.machine, self.record.get("machine", {})
        # As in the first session, since dropout masks depend on it.
        same_kind = str(before.get("device", "")).partition(":")[0] == machine.device.type
        kept: int = before.get("tokens_per_microbatch", 0) if same_kind else 0
        self.tokens_per_microbatch = broadcast_object(
            kept or machine.tokens_per_microbatch(plan.existing.config.hidden_size)
        )
        initial_ranks: int = self.record["ranks"] if before else world_size()
        record = {
            **{name: value for name, value in self.record.items() if name not in _WRITTEN_AT_END},
            "system": plan.system,
            "settings_from": plan.source,
            "fitted": [choice.to_json() for choice in plan.choices],
            "machine": {
                **machine.to_json(),
                "kernels": before.get("kernels", machine.kernels),
                "tokens_per_microbatch": self.tokens_per_microbatch,
            },
            "ranks": initial_ranks,
            "environment": environment(),
        }
        self._announce()
        if rank() == 0:
            self.folder.write_record(record)
        dropout = any(getattr(plan.settings, name) for name in _DROPOUTS)
        self.ranks = microbatch_multiple(initial_ranks, dropout=dropout, reporter=self.reporter)
        if self.search is not None:
            if not self._search(self.search, seeds[0]):
                return None
            record["chosen_settings"] = self.plan.settings.model_dump(mode="json")
            if rank() == 0:
                self.folder.write_record(record)
        # Those of earlier calls too, since they are in the results.
        wanted = on_rank_zero(lambda: sorted({*seeds, *self._earlier_seeds()}))
        if not all(self._train(seed, self._seed_folder(seed), self.plan.settings) for seed in wanted):
            return None
        return on_rank_zero(lambda: self._finish(record))

    def _earlier_seeds(self) -> list[int]:
        names = [path.parent.name.removeprefix("seed-") for path in (self.folder.path / RUNS).glob("seed-*/run.json")]
        return [int(name) for name in names if name.isdecimal()]

    def _finished(self, folder: Path) -> SeedResult | None:
        """Return the result of a finished seed; remove the folder of a damaged one."""
        try:
            return read_result(folder)
        except CheckpointError as error:
            self.reporter.message("restored", f"{error.problem}; {folder.name} is trained again")
            shutil.rmtree(folder)
            return None

    def _finish(self, record: Mapping[str, Any]) -> Results | None:
        """Score the test examples and the baselines, write the results; None if a stop was requested."""
        plan = self.plan
        runs = [read_result(folder) for folder in (self.folder.path / RUNS).glob("seed-*")]
        trained = sorted((run for run in runs if run is not None), key=lambda run: run.seed)
        tested: list[dict[str, Any]] = []
        for run in trained if "test" in plan.labeled.parts else ():
            if self.stop:
                return None
            tested.append(measure_test(run.folder, plan.labeled.parts["test"], self.machine, self.reporter))
        if (baselines := self._baselines()) is None:
            return None
        results = self._results(trained, tested, baselines)
        best = next(run for run in trained if run.seed == results.best.seed)
        self._publish(best)
        facts = read_card_facts(plan.existing.folder, plan.existing.name)
        card = model_card(self.folder.path.name, load(self.folder.path), results, facts)
        write_results(self.folder.path, results, card)
        self.folder.write_record({**record, "finished": True, "best_seed": best.seed})
        return results

    def _baselines(self) -> dict[str, Any] | None:
        """Return the metrics of the baselines, those of an earlier call for the same examples; None on a stop request.

        They are written to baselines.json.
        """
        plan, file = self.plan, self.folder.path / "baselines.json"
        examples = {name: part.fingerprint for name, part in plan.labeled.parts.items()}
        with contextlib.suppress(OSError, ValueError, KeyError):
            kept = read_record(file)
            if kept["examples"] == examples:
                return dict(kept["baselines"])
        embed = None
        if not plan.from_scratch:
            embed = frozen_vectors(plan.existing, plan.settings.max_length, self.machine, self.reporter.stage)
        baselines = {}
        for name, metrics in measure_baselines(plan.labeled, embed):
            if self.stop:
                return None
            baselines[name] = metrics
        write_record(file, {"examples": examples, "baselines": baselines})
        return baselines

    def _publish(self, best: SeedResult) -> None:
        """Copy the best seed's model into the output folder; report what was damaged there."""
        files = {file.name: file for file in sorted((best.folder / MODEL).iterdir())}
        damaged = damaged_files(self.folder.path, {name: checksum(file) for name, file in files.items()})
        for name, problem in damaged.items():
            if self.record.get("best_seed") == best.seed:  # It was published before.
                self.reporter.message("restored", f"{problem}: copied from {best.folder.name}")
            with atomic_path(self.folder.path / name) as temporary:
                shutil.copyfile(files[name], temporary)

    def _announce(self) -> None:
        plan, settings = self.plan, self.plan.settings
        report_fitted(plan.choices, self.reporter, field="setting")
        length = f"{settings.epochs:g} epoch{'s' * (settings.epochs != 1)}"
        self.reporter.message(
            "plan",
            f"{plan.labeled.name} with {plan.existing.name}{' from scratch' * plan.from_scratch} into "
            f"{self.folder.path}: {length if settings.steps is None else f'{settings.steps:,} steps'}, "
            f"batch size {settings.batch_size}, peak learning rate {settings.learning_rate:g}, "
            f"up to {settings.max_length} tokens{', in bf16' * (self.machine.precision == 'bf16')}; "
            f"all settings in {self.folder.path / 'run.json'} ({plan.source})",
        )
        self._report_truncated(plan.data.truncated)

    def _report_truncated(self, counts: Mapping[str, int]) -> None:
        """Report how many examples of each part are truncated, and the setting that helps."""
        plan = self.plan
        layout = Layout.of(plan.existing.config, plan.existing.tokenizer, plan.settings.max_length)
        if isinstance(plan.task, QuestionAnswering):
            remedy = "; raise `--set task.max_query_length=...`"
        elif layout.max_length < plan.existing.max_length:
            remedy = f"; `--set max_length={plan.existing.max_length}` is the model's limit"
        else:
            remedy = "; `predict` and `evaluate` read all of it with `--windows`" * isinstance(plan.task, TextTask)
        limit = plan.task.limit(layout)
        report_truncated(plan.labeled.parts, counts, limit, f"{IGNORED}{remedy}", self.reporter)

    def _seed_folder(self, seed: int) -> Path:
        return self.folder.path / RUNS / f"seed-{seed}"

    def _search(self, search: SettingsSearch, seed: int) -> bool:
        """Train the trials that are left, and choose the best settings; False if a stop was requested."""
        while (trial := on_rank_zero(search.begin)) is not None:
            number, settings = trial
            folder = search.trial_folder(number)
            self.reporter.message("search", f"trial {number}: {search.describe(settings)}")
            diverged = False
            try:
                if not self._train(seed, folder, settings):
                    return False
            except (DivergenceError, DataError) as error:  # Of a loss, or of predictions on dev.
                diverged = True
                self.reporter.message("search", f"trial {number} has no score: {error.problem}")
            on_rank_zero(partial(search.finish, diverged=diverged))
        chosen, best = on_rank_zero(lambda: (search.chosen, search.best))
        self.plan = replace(self.plan, settings=chosen)
        self.reporter.message("search", f"trial {best} was the best on dev: {search.describe(chosen)}")
        folder, trained = self._seed_folder(seed), search.trial_folder(best)
        # The best trial is the run of its seed. Without either folder that seed is trained again.
        if rank() == 0 and not folder.exists() and trained.exists():
            trained.rename(folder)
        return True

    def _train(self, seed: int, folder: Path, settings: Hyperparameters) -> bool:
        """Train a seed, of a trial perhaps, unless it is done; False if a stop was requested."""
        if (before := on_rank_zero(lambda: self._finished(folder))) is not None:
            if rank() == 0:
                remove_unfinished(folder)
            self.reporter.message("finished", f"seed {seed} already trained ({before.chosen.main:.4g})")
            return True
        if self.stop.agree():
            return False
        model = build(
            self.plan.existing,
            self.plan.task,
            seed=seed,
            max_length=settings.max_length,
            from_scratch=self.plan.from_scratch,
            mean_layer=settings.frozen,
            **{name: getattr(settings, name) for name in _DROPOUTS},
        )
        model.read_as = self.plan.labeled.read_as
        for note in model.notes:
            if note not in self.reported:
                self.reported.add(note)
                self.reporter.message("model", note)
        if rank() == 0:
            self.folder.write_copy(folder)
        run = SeedRun(
            folder=folder,
            model=model.to(self.machine.device),
            data=self.plan.data,
            settings=settings,
            seed=seed,
            machine=self.machine,
            tokens_per_microbatch=self.tokens_per_microbatch,
            ranks=self.ranks,
            reporter=self.reporter,
            trackers=self.trackers,
        )
        return run.run(self.stop, self.checkpoint_seconds)

    def _results(
        self,
        trained: Sequence[SeedResult],
        tested: Sequence[dict[str, Any]],
        baselines: Mapping[str, Mapping[str, Metrics]],
    ) -> Results:
        plan, labeled = self.plan, self.plan.labeled
        truncated = plan.data.truncated
        if tested:
            truncated["test"] = tested[0]["truncated"]
            self._report_truncated({"test": truncated["test"]})
        tests = [test["metrics"] for test in tested] or [None] * len(trained)
        return Results(
            task=labeled.name,
            kind=labeled.task.kind,
            model=plan.existing.name,
            from_scratch=plan.from_scratch,
            data=data_of(labeled.parts, truncated),
            settings=plan.settings.model_dump(mode="json"),
            task_settings={name: value for name, value in plan.task.to_json().items() if name not in _NOT_SET},
            pairs=any(len(getattr(example, "texts", ())) == 2 for example in labeled.parts["train"].examples),
            rows=tuple(
                SeedRow(
                    seed=run.seed,
                    steps=run.steps,
                    best_epoch=run.chosen.epoch,
                    dev=run.chosen.metrics,
                    test=test,
                    is_rising=run.is_rising,
                    examples=run.examples,
                    seconds=run.seconds,
                    examples_per_second=run.examples_per_second,
                )
                for run, test in zip(trained, tests, strict=True)
            ),
            notes=labeled.notes,
            trials=tuple(self.search.trials) if self.search else (),
            precision=self.machine.precision,
            baselines=baselines,
        )


def measure_test(folder: Path, test: ExampleFile[Any], machine: Machine, reporter: Reporter) -> dict[str, Any]:
    """Predict the test examples with a finished run's model, or return the scores of an earlier call for the same ones.

    Writes test_predictions.jsonl and test.json into the run's folder. The scores hold "examples", their fingerprint;
    "metrics", None where they have no labels; "truncated", the number of truncated examples.
    """
    record = folder / "test.json"
    if record.exists():
        try:
            before = read_record(record)
            compare_files(folder, before.get("files", {}))
            if before["examples"] == test.fingerprint and "truncated" in before:
                return before
        except (ValueError, KeyError) as error:
            reporter.message("restored", f"{folder.name}: {error}; the test examples are predicted again")
    model = load(folder / MODEL).to(machine.device)
    predictions = predict_examples(model, TextEncoder(model.encoder, machine.precision), test.examples, reporter.stage)
    write_predictions(folder / PREDICTIONS, predictions)
    metrics = model.task.measure(predictions, test.examples) if has_labels(test.examples) else None
    files = {PREDICTIONS: checksum(folder / PREDICTIONS)}
    truncated = sum(each.truncated for each in predictions)
    scores = {"examples": test.fingerprint, "metrics": metrics, "truncated": truncated, "files": files}
    write_record(record, scores)
    return scores
