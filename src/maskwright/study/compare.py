"""`maskwright.compare`: train recipes with equal spend and several seeds, measure them, compare them with a baseline.

OUT/study.json            what all runs share: corpus, cleaning, budget, vocabulary
OUT/text/                 training text and held-out text (`study.text`)
OUT/tokenizers/           one per tokenizer setting, so that recipes that may share a vocabulary do
OUT/runs/LABEL/seed-N/    run directories of `pretrain`
OUT/finetuning/...        directories of `finetune`
OUT/measurements/LABEL/seed-N/TASK.json
OUT/measurements/untrained/SHAPE/TASK.json   the same of an untrained model, one per shape (`study.probes`)
OUT/report.html, .md, .csv, .json
OUT/copies/study.json     to restore it from

`text` and `tokenizers` have checksums of their files (`data.cache`), and `study.json` has those of these checksums.

Each of these is written whole or not at all, and what is there is not made again: the same call resumes, and with
another recipe, seed or task it adds what is missing. Runs go seed by seed, so that whatever changes on the machine over
hours affects all recipes alike.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.core.errors import CheckpointError, RecipeError, unknown_name
from maskwright.core.storage.checksums import read_record
from maskwright.core.text.amounts import pluralize
from maskwright.data.engines import Engine, check_workers, use_engine
from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import Speed
from maskwright.fitting.rules import round_digits
from maskwright.recipes.recipe import Recipe
from maskwright.reporting.console import ConsoleReporter
from maskwright.reporting.reporter import Reporter
from maskwright.study.experiment import (
    MASKED,
    Experiment,
    RunState,
    StoppedError,
    check_tasks,
    fit_variant,
    flops_per_token,
)
from maskwright.study.intrinsic import check_text
from maskwright.study.rates import RateTuning
from maskwright.study.record import FORMAT, StudyRecord, load_content, locked, refuse_foreign
from maskwright.study.report import write_report
from maskwright.study.request import DEFAULT_TASKS, SAMPLES, TUNING_SEED, Task, Variant, tasks_of, variants_of
from maskwright.study.results import collect
from maskwright.training.ranks.device import Precision, restore_machine
from maskwright.training.ranks.distributed import on_rank_zero, process_group, rank, world_size
from maskwright.training.start.initialization import require_teacher
from maskwright.training.start.speed import measure_speed


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One line of a dry run; FLOPs and tokens as far as they are known before training (0: not at all)."""

    label: str
    seed: int
    state: RunState
    flops: float
    tokens: float
    to_measure: tuple[str, ...]

    @property
    def is_trial(self) -> bool:
        """Whether it tries a learning rate and is not compared."""
        return self.seed == TUNING_SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The state of a study.

    Attributes:
        folder: Its directory; `report.html` is there once the runs of one seed are done.
        finished: Whether all runs are trained and measured. If not, the same call resumes.
        runs: All of them, as they were planned at the beginning of the call.
        report: The content of `report.json`; None in a dry run and before the runs of one seed are done.
    """

    folder: Path
    finished: bool
    runs: tuple[PlannedRun, ...]
    report: dict[str, Any] | None


@process_group()
def compare(
    corpus: str | Path | Sequence[str | Path],
    recipes: Sequence[str | Recipe] | Mapping[str, str | Recipe],
    *,
    out: str | Path,
    flops: float | None = None,
    tokens: float | None = None,
    minutes: float | None = None,
    wall_clock: bool = False,
    seeds: int = 3,
    seed: int = 0,
    tasks: Sequence[str] = DEFAULT_TASKS,
    baseline: str | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    set: Sequence[str] = (),
    clean: Sequence[str] = (),
    finetune_set: Sequence[str] = (),
    device: str = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    engine: Engine | None = None,
    cache: str | Path | None = None,
    tune_rate: bool = False,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Comparison:
    """Compare recipes on a corpus with equal spend. The same call resumes; a larger one adds what is missing.

    Args:
        corpus, device, precision, workers, engine, cache, reporter, clean: As for `pretrain`.
        recipes: Names or files of recipes; `LABEL=RECIPE` names one yourself. In Python also recipes by label.
        out: Study directory: new, empty, or of this same study, which resumes.
        flops: FLOPs of each run, e.g. 1e15. Give one budget.
        tokens: Tokens of each run, e.g. 1e8.
        minutes: Minutes that the baseline is expected to train on this machine; all runs spend the FLOPs that it does
            in them.
        wall_clock: Give each run `minutes` of time instead of equal FLOPs.
        seeds: Number of seeds; 3 or more to show differences.
        seed: The first seed.
        tasks: What to measure: masked, intrinsic, cost, `blimp=DIR` (minimal pairs), and tasks of `maskwright finetune`
            with their data, `sst-2=DIR` or `classification=FILE`; `LABEL:TASK=PATH` names one yourself.
        baseline: Label of the recipe that the others are compared with. Default: the first.
        vary: Recipe fields with their values; each recipe is compared under all combinations.
        set: Override a field of all recipes, `masking.rate=0.3`, or of one, `LABEL:masking.rate=0.3`.
        finetune_set: Override a hyperparameter of fine-tuning, e.g. `epochs=2`.
        tune_rate: Try half, the same and twice the fitted learning rate of each recipe on a seed that is not compared,
            and use the best: three more runs of each recipe.
        dry_run: Only list the runs and what they may spend.

    Raises:
        MaskwrightError: If an argument is invalid, or `out` holds another study.

    Examples:
        >>> done = maskwright.compare("corpus/", ["bert/mini", "electra/mini"], flops=1e15, out="studies/first")
        >>> done.report["metrics"]["word_accuracy"]["rows"]["electra/mini"]["verdict"]
        'no difference shown'
    """
    check_workers(workers)
    variants = variants_of(recipes, vary or {}, set)
    baseline = baseline or next(iter(variants))
    if baseline not in variants:
        raise unknown_name(RecipeError, "baseline", baseline, list(variants))
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}", allowed="1 or more")
    if tune_rate and TUNING_SEED in range(seed, seed + seeds):
        raise RecipeError(f"seed {TUNING_SEED} is that of --tune-rate", hint="Choose other seeds.")
    for variant in variants.values():
        require_teacher(variant.recipe, f"`--set {variant.label}:teacher.model=DIR_OR_HUB_NAME`")
    chosen = tasks_of(tasks)
    requested = Budget.of(flops=flops, tokens=tokens, minutes=minutes)
    if requested is None or (wall_clock and requested.unit != "seconds"):
        raise RecipeError(
            "no budget was given" if requested is None else "--wall-clock needs --minutes",
            hint="Give the budget of one run: --minutes, --flops or --tokens.",
        )
    sources = (str(corpus),) if isinstance(corpus, str | Path) else tuple(map(str, corpus))
    folder = Path(out).expanduser()
    cached = None if cache is None else Path(cache).expanduser()
    request = {
        "corpus": list(sources),
        "clean": list(clean),
        "requested": {requested.unit: requested.amount, "wall_clock": wall_clock},
        "tune_rate": tune_rate,
    }
    on_rank_zero(partial(refuse_foreign, folder))
    on_rank_zero(partial(check_tasks, chosen, finetune_set))
    with (
        use_engine(engine),
        (reporter or ConsoleReporter()) if rank() == 0 else Reporter() as reporter,
        contextlib.nullcontext() if dry_run or rank() else locked(folder),
    ):

        def new_content() -> dict[str, Any]:
            speed, budget = Speed(), requested
            if requested.unit == "seconds":
                machine, _ = restore_machine({}, device, cached, precision)
                speed = measure_speed(
                    first.recipe, requested, machine, fixed=first.fixed, tries_larger_steps=wall_clock
                )
                speed = replace(speed, flops=world_size() * speed.flops)
            fitted = fit_variant(first, requested, speed)
            if requested.unit == "seconds" and not wall_clock:
                budget = Budget("flops", round_digits(fitted.expected_tokens * flops_per_token(fitted.recipe), 3))
            shared = {"budget": {"unit": budget.unit, "amount": budget.amount}}
            return {"format": FORMAT, **request, **shared, "vocabulary_tokens": fitted.expected_tokens}

        first = variants[baseline]
        content = on_rank_zero(lambda: load_content(folder, request, reporter) or new_content())
        experiment = Experiment(
            record=StudyRecord(folder, content),
            vocabulary_tokens=content["vocabulary_tokens"],
            clean=tuple(clean),
            finetune_set=tuple(finetune_set),
            options={"device": device, "precision": precision},
            prepare={"cache": cached, "workers": workers},
            reporter=reporter,
        )
        budget = Budget(**content["budget"])
        study = Study(
            experiment=experiment,
            variants=variants,
            seeds=range(seed, seed + seeds),
            tasks=chosen,
            budget=budget,
            tuning=RateTuning(experiment, budget) if tune_rate else None,
        )
        runs = tuple(study.planned())
        if dry_run:
            return Comparison(folder=folder, finished=False, runs=runs, report=None)
        experiment.record.write()
        finished = True
        try:
            study.run(sources, baseline)
        except (StoppedError, KeyboardInterrupt) as stop:
            reporter.message("stopped", "the same command resumes the study")
            if isinstance(stop, KeyboardInterrupt):
                raise
            finished = False
        return Comparison(folder=folder, finished=finished, runs=runs, report=study.report)


@dataclass(slots=True, kw_only=True)
class Study:
    """The runs of one call (see `compare` for the fields), and the report, once the runs of a seed are done."""

    experiment: Experiment
    variants: dict[str, Variant]
    seeds: range
    tasks: tuple[Task, ...]
    budget: Budget
    tuning: RateTuning | None = None
    report: dict[str, Any] | None = None

    def planned(self) -> list[PlannedRun]:
        """Return all runs in the order in which they are done: seed by seed."""
        tuned, trials = self._tuned(), list[Variant]()
        if self.tuning:
            trials = [trial for variant in self.variants.values() for trial in self.tuning.trials(variant)]
        return [
            *(self._planned_run(variant, TUNING_SEED, (MASKED,)) for variant in trials),
            *(self._planned_run(variant, seed, self.tasks) for seed in self.seeds for variant in tuned.values()),
        ]

    def run(self, sources: Sequence[str], baseline: str) -> None:
        """Do what is missing. Raises StoppedError if the user stopped a run."""
        experiment, reporter = self.experiment, self.experiment.reporter
        text = experiment.prepare_text(sources)
        check_text(text, with_pairs=any(task.kind == "intrinsic" for task in self.tasks))
        self._refuse_other_runs()  # Before any training.
        if self.tuning is not None:
            for variant in self.variants.values():
                self.tuning.tune(variant, text)
            self._refuse_other_runs()  # With the rates that were found.
        missing = [run for run in self.planned() if not run.is_trial and (run.state != "finished" or run.to_measure)]
        total, done, begun = len(self.seeds) * len(self.variants), 0, time.monotonic()
        reporter.message(
            "study",
            f"{pluralize(total, 'run')} of {self.budget} each into {experiment.folder}; "
            f"{total - len(missing)} complete",
        )
        variants = self._tuned()
        for seed in self.seeds:
            for variant in variants.values():
                is_missing = any((run.label, run.seed) == (variant.label, seed) for run in missing)
                if is_missing:
                    left = (time.monotonic() - begun) / done * (len(missing) - done) if done else None
                    number = total - len(missing) + done + 1
                    reporter.message("run", f"{variant.label}, seed {seed}: {number} of {total}{_end_time(left)}")
                # Example passages are in the report for the first seed only.
                tasks = (*self.tasks, Task(SAMPLES, SAMPLES)) if seed == self.seeds[0] else self.tasks
                experiment.train_and_measure(variant, seed, self.budget, text, tasks)
                on_rank_zero(partial(experiment.measure_untrained, variant, seed, text, self.tasks))
                done += is_missing
            # After each seed, so that a long study can be read before it is finished.
            seeds = [each for each in self.seeds if each <= seed]
            self.report = on_rank_zero(partial(self._write_report, variants, baseline, seeds))
        reporter.message("report", f"{experiment.folder / 'report.html'}; also .md, .csv and .json")

    def _tuned(self) -> dict[str, Variant]:
        """Return the recipes with their best learning rates, as far as these are known."""
        tuned = self.tuning.tuned if self.tuning else lambda variant: variant
        return {label: tuned(variant) for label, variant in self.variants.items()}

    def _planned_run(self, variant: Variant, seed: int, tasks: Sequence[Task]) -> PlannedRun:
        fitted = fit_variant(self.experiment.with_vocabulary(variant), self.budget)
        in_flops = self.budget.unit == "flops"
        return PlannedRun(
            label=variant.label,
            seed=seed,
            state=self.experiment.state(variant, seed, self.budget),
            flops=self.budget.amount if in_flops else fitted.expected_tokens * flops_per_token(fitted.recipe),
            tokens=fitted.expected_tokens,
            to_measure=tuple(task.name for task in self.experiment.unmeasured(variant, seed, tasks)),
        )

    def _refuse_other_runs(self) -> None:
        """Raise CheckpointError if runs in the study's folder have other settings than this call."""
        runs = [(variant, seed) for seed in self.seeds for variant in self._tuned().values()]
        if self.tuning:
            runs += [(self.tuning.trials(variant)[0], TUNING_SEED) for variant in self.variants.values()]

        def others() -> list[str]:
            state = self.experiment.state
            return [
                f"{variant.label}, seed {seed}"
                for variant, seed in runs
                if state(variant, seed, self.budget) == "of other settings"
            ]

        if names := on_rank_zero(others):
            raise CheckpointError(
                f"{self.experiment.folder} holds runs of other settings: {'; '.join(names)}",
                hint="Repeat the old settings, choose another label (`--recipes LABEL=RECIPE`) or another --out.",
            )

    def _write_report(self, variants: Mapping[str, Variant], baseline: str, seeds: Sequence[int]) -> dict[str, Any]:
        folder = self.experiment.folder
        report = collect(folder, variants, self.tasks, baseline, seeds, planned_seeds=self.seeds)
        if self.tuning:
            tried = {label: read_record(self.tuning.file(variant)) for label, variant in self.variants.items()}
            report["rates"] = {"seed": TUNING_SEED, "recipes": tried}
        write_report(folder, report)
        return report


def _end_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    left = f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f", about {left} left, until {time.strftime('%a %H:%M', time.localtime(time.time() + seconds))}"
