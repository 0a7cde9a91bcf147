"""`maskwright.compare`: train recipes with equal spend and several seeds, measure them, compare them with a baseline.

OUT/study.json            what all runs share: corpus, cleaning, budget, vocabulary
OUT/text/                 training text and held-out text (`study.text`)
OUT/tokenizers/           one per tokenizer setting, so that recipes that may share a vocabulary do
OUT/runs/LABEL/seed-N/    run directories of `pretrain`
OUT/finetuning/...        directories of `finetune`
OUT/measurements/LABEL/seed-N/TASK.json
OUT/measurements/untrained/SHAPE/TASK.json   the same of an untrained model, one per shape (`study.controls`)
OUT/report.html, .md, .csv, .json
OUT/copies/study.json     to restore it from

`text` and `tokenizers` have checksums of their files (`data.cache`), and `study.json` has those of these checksums.

Each of these is written whole or not at all, and what is there is not made again: the same call resumes, and with
another recipe, seed or task it adds what is missing. Runs go seed by seed, so that whatever changes on the machine over
hours affects all recipes alike.
"""

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from maskwright.core.checksums import CONTENTS, file_checksums, read_record, record_problem, write_record
from maskwright.core.errors import CheckpointError, RecipeError, TrainingError, unknown_name
from maskwright.core.files import checksum, disk_problems, remove_temporary
from maskwright.core.spec import fingerprint, override, parse_overrides
from maskwright.core.types import IntArray
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.engines import Engine, use_engine
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.finetune import finetune
from maskwright.finetuning.tasks import KINDS
from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import CorpusStatistics, ResolvedRun, Speed, resolve, vocabulary_size
from maskwright.inference.model import Model, load
from maskwright.recipes.catalog import resolve as recipe_named
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.study import controls, probes
from maskwright.study.intrinsic import check_text, intrinsic
from maskwright.study.report import write_report
from maskwright.study.request import DEFAULT_TASKS, SAMPLES, Task, Variant, tasks_of, variants_of
from maskwright.study.results import collect
from maskwright.study.text import StudyText, open_text, prepare_text
from maskwright.training.device import Machine, Precision, restore_machine
from maskwright.training.distributed import (
    all_reduce_max,
    on_rank_zero,
    process_group,
    rank,
    rank_zero_first,
    world_size,
)
from maskwright.training.initialization import require_teacher
from maskwright.training.pretrain import RunResult, pretrain, request_of
from maskwright.training.reporting import OnConsole, Reporter, Silent
from maskwright.training.run_directory import COPIES, is_same_run, lock_directory, unlock_directory
from maskwright.training.speed import measure_speed

Part = TypeVar("Part")
STUDY = "study.json"
_VOCABULARY = "tokenizer.vocab_size"
RATE_FACTORS = (1.0, 0.5, 2.0)
"""Of the fitted learning rate, as tried by `--tune-rate`."""
TUNING_SEED = 1_000_000
_MASKED = Task("masked", "masked")
_PROBES = ("masked", "intrinsic", "minimal-pairs")
_MEASURES = 2
"""Version of what measurements hold; older ones are made again."""
_MEASURING = {
    "masked": "measuring masked words",
    "intrinsic": "measuring sentence order and other probes",
    "cost": "measuring speed and size",
    SAMPLES: "filling masks in example passages",
}


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One line of a dry run; FLOPs and tokens as far as they are known before training (0: not at all)."""

    label: str
    seed: int
    state: Literal["missing", "begun", "finished", "of other settings"]
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
        corpus: As for `pretrain`.
        recipes: Names or files of recipes, "LABEL=RECIPE" to name one yourself; or recipes by label.
        out: The study's directory.
        flops, tokens, minutes: The budget of each run; give one. `minutes` is converted once into the FLOPs that the
            baseline is expected to do in that time on this machine, which all runs then spend.
        wall_clock: Give each run `minutes` of time instead.
        seeds: How many seeds; 3 or more for a verdict that means something.
        seed: The first one.
        tasks: "masked", "intrinsic", "cost", "minimal-pairs=PATH" (or "blimp=PATH"), "BENCHMARK=DIR" and "KIND=FILE"
            of `finetune`, each as "LABEL:TASK=PATH" to name it yourself.
        baseline: A label; default: the first.
        vary: Recipe fields with their values; each recipe is compared under all combinations.
        set: Overrides of all recipes, "masking.rate=0.3", or of one, "LABEL:masking.rate=0.3".
        clean: Overrides of the cleaning.
        finetune_set: Hyperparameters of fine-tuning, "epochs=2".
        device, precision, workers, engine, cache: As for `pretrain`.
        tune_rate: Try half, the same and twice the fitted learning rate of each recipe first, on a seed that is not
            compared, and use the best: three more runs of each recipe.
        dry_run: Only list the runs.
        reporter: Where messages go; None for standard error.

    Raises:
        MaskwrightError: If an argument is invalid, or `out` holds another study.

    Examples:
        >>> done = maskwright.compare("corpus/", ["bert/mini", "electra/mini"], flops=1e15, out="studies/first")
        >>> done.report["metrics"]["word_accuracy"]["rows"]["electra/mini"]["verdict"]
        'no difference shown'
    """
    variants = variants_of(recipes, vary or {}, set)
    baseline = baseline or next(iter(variants))
    if baseline not in variants:
        problem, allowed, todo = unknown_name("baseline", baseline, list(variants))
        raise RecipeError(problem, allowed=allowed, todo=todo)
    if seeds < 1:
        raise RecipeError(f"--seeds is {seeds}", allowed="1 or more")
    if tune_rate and TUNING_SEED in range(seed, seed + seeds):
        raise RecipeError(f"seed {TUNING_SEED} is that of --tune-rate", todo="Choose other seeds.")
    for variant in variants.values():
        require_teacher(variant.recipe, f"`--set {variant.label}:teacher.model=DIR_OR_HUB_NAME`")
    chosen = tasks_of(tasks)
    requested = Budget.of(flops=flops, tokens=tokens, minutes=minutes)
    if requested is None or (wall_clock and requested.unit != "seconds"):
        raise RecipeError(
            "no budget was given" if requested is None else "--wall-clock needs --minutes",
            todo="Give the budget of one run: --minutes, --flops or --tokens.",
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
    with (
        use_engine(engine),
        (reporter or OnConsole()) if rank() == 0 else Silent() as reporter,
        contextlib.nullcontext() if dry_run or rank() else _locked(folder),
    ):
        machine = partial(restore_machine, {}, device, cached, precision)
        begun = partial(_new_study, request, requested, wall_clock, variants[baseline], machine, world_size())
        shared = on_rank_zero(lambda: _load_study(folder, request, reporter) or begun())
        study = Study(
            folder=folder,
            variants=variants,
            seeds=range(seed, seed + seeds),
            tasks=chosen,
            budget=Budget(**shared["budget"]),
            vocabulary_tokens=shared["vocabulary_tokens"],
            clean=tuple(clean),
            finetune_set=tuple(finetune_set),
            options={"device": device, "precision": precision},
            prepare={"cache": cached, "workers": workers},
            reporter=reporter,
            shared=shared,
            tune_rate=tune_rate,
        )
        runs = tuple(study.planned())
        if dry_run:
            return Comparison(folder=folder, finished=False, runs=runs, report=None)
        study.write_shared()
        report = study.run(sources, baseline)
        return Comparison(folder=folder, finished=study.complete, runs=runs, report=report)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a study's directory while the block runs, and remove what kills have left in it."""
    is_new = not folder.exists()
    with disk_problems(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = lock_directory(folder)
    try:
        remove_temporary(folder)
        yield
    finally:
        unlock_directory(folder, descriptor, and_remove=is_new)


def best_rate(losses: Mapping[float, float | None]) -> float | None:
    """Return the factor with the lowest finite loss, the first of equal ones; None if there is none."""
    finite = {factor: loss for factor, loss in losses.items() if loss is not None and math.isfinite(loss)}
    return min(finite, key=lambda factor: finite[factor], default=None)


def _load_study(folder: Path, request: Mapping[str, Any], reporter: Reporter) -> dict[str, Any] | None:
    """Return what an earlier call wrote to `study.json`, or None; raises CheckpointError if it was another study."""
    if not any(place.exists() for place in _places(folder)):
        return None
    kept: dict[str, Any] | None = None
    problems: list[str] = []
    for place in _places(folder):
        try:
            kept = read_record(place)
            break
        except ValueError as error:
            problems.append(str(error))
    if kept is None:
        raise CheckpointError(
            f"{folder / STUDY} is damaged: {problems[0]}, and so is its copy",
            todo=f"Restore it from a backup, or remove {folder} to start again.",
        )
    for problem in problems:
        reporter.message("restored", f"{problem}: restored from a copy")
    kept.setdefault("tune_rate", False)  # Studies of earlier versions have none.
    differing = [f"{key} was {kept[key]!r}, now {value!r}" for key, value in request.items() if kept[key] != value]
    if differing:
        raise CheckpointError(
            f"{folder} holds another study: {'; '.join(differing)}",
            todo="Repeat the old corpus, cleaning and budget to add to it, or choose another --out.",
        )
    return kept


def _places(folder: Path) -> tuple[Path, Path]:
    return folder / STUDY, folder / COPIES / STUDY


def _new_study(
    request: Mapping[str, Any],
    requested: Budget,
    wall_clock: bool,
    variant: Variant,
    machine: Callable[[], tuple[Machine, str | None]],
    processes: int,
) -> dict[str, Any]:
    """Return the content of `study.json`: the request, the budget of each run, and the tokens it buys the baseline."""
    is_time, speed = requested.unit == "seconds", Speed()
    if is_time:
        measured = measure_speed(
            variant.recipe, requested, machine()[0], fixed=variant.fixed, tries_larger_steps=wall_clock
        )
        speed = replace(measured, flops=processes * measured.flops)
    fitted = fit_variant(variant, requested, speed)
    tokens, budget = fitted.expected_tokens, requested
    if is_time and not wall_clock:
        budget = Budget("flops", float(f"{_training_flops(fitted):.3g}"))
    return {
        "format": 1,
        **request,
        "budget": {"unit": budget.unit, "amount": budget.amount},
        "vocabulary_tokens": tokens,
    }


def fit_variant(
    variant: Variant, budget: Budget, speed: Speed = Speed(), corpus_tokens: float = float("inf")
) -> ResolvedRun:
    """Fit a recipe as `pretrain` does, with sequences of full length."""
    options: dict[str, Any] = {"fixed": variant.fixed, "speed": speed}
    before = resolve(variant.recipe, budget, CorpusStatistics(chinese_share=1.0), **options).recipe
    lengths = tuple(float(phase.max_length) for phase in before.training.phases)
    corpus = CorpusStatistics(chinese_share=1.0, tokens=corpus_tokens, mean_lengths=lengths)
    return resolve(before, budget, corpus, **options)


def _training_flops(fitted: ResolvedRun) -> float:
    """Return the training FLOPs of a fitted run; each length phase has its share of the tokens."""
    recipe, vocab_size = fitted.recipe, fitted.recipe.tokenizer.vocab_size
    per_token = sum(
        phase.share * training_flops_per_token(recipe, vocab_size, length=phase.max_length)
        for phase in recipe.training.phases
    )
    return fitted.expected_tokens * per_token


class RunReporter(Reporter):
    """Passes on progress, health and warnings of a run; its other lines would fill screens in a study."""

    def __init__(self, reporter: Reporter, label: str) -> None:
        self._reporter, self._label = reporter, label

    def message(self, topic: str, text: str) -> None:
        if topic in ("warning", "health", "resuming", "restored"):
            self._reporter.message(topic, f"{self._label}: {text}")

    def table(self, topic: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        pass

    def stage(self, name: str, done: int, total: int | None) -> None:
        self._reporter.stage(name, done, total)

    def training(self, share: float, text: str) -> None:
        self._reporter.training(share, f"{self._label}  {text}")

    def close(self) -> None:
        self._reporter.close()


@dataclass(slots=True, kw_only=True)
class Study:
    """The work of one call (see `compare` for the fields)."""

    folder: Path
    variants: dict[str, Variant]
    seeds: range
    tasks: tuple[Task, ...]
    budget: Budget
    vocabulary_tokens: float
    clean: tuple[str, ...]
    finetune_set: tuple[str, ...]
    options: dict[str, Any]
    prepare: dict[str, Any]
    reporter: Reporter
    shared: dict[str, Any] = field(default_factory=dict)
    """The content of `study.json`."""
    tune_rate: bool = False
    complete: bool = False
    _token_counts: dict[str, IntArray] = field(default_factory=dict)

    def planned(self) -> list[PlannedRun]:
        """Return all runs in the order in which they are done: seed by seed."""
        runs = []
        tuning = [(TUNING_SEED, each) for variant in self.variants.values() for each in self._rates(variant)]
        compared = [(seed, self._tuned(variant)) for seed in self.seeds for variant in self.variants.values()]
        for seed, variant in [*(tuning if self.tune_rate else ()), *compared]:
            fitted = fit_variant(self._with_fixed_vocabulary(variant), self.budget)
            tokens = fitted.expected_tokens
            runs.append(
                PlannedRun(
                    label=variant.label,
                    seed=seed,
                    state=self._state(variant, seed),
                    flops=self.budget.amount if self.budget.unit == "flops" else _training_flops(fitted),
                    tokens=tokens,
                    to_measure=tuple(
                        task.name
                        for task in ((_MASKED,) if seed == TUNING_SEED else self.tasks)
                        if not self._is_measured(task, variant, seed)
                    ),
                )
            )
        return runs

    def run(self, sources: Sequence[str], baseline: str) -> dict[str, Any] | None:
        """Do what is missing; returns the report, or None if nothing could be reported before a stop."""
        cleaning = override(Cleaning(), parse_overrides(self.clean))
        with rank_zero_first():
            split = partial(prepare_text, corpus=sources, cleaning=cleaning, **self.prepare)
            text = self._part("text", partial(split, progress=self.reporter.stage))
        check_text(text, with_pairs=any(task.kind == "intrinsic" for task in self.tasks))
        if self.tune_rate and not all(self._tune(variant, text) for variant in self.variants.values()):
            self.reporter.message("stopped", "the same command resumes the study")
            return None
        variants = {label: self._tuned(variant) for label, variant in self.variants.items()}
        compared = [run for run in self.planned() if not run.is_trial]
        todo = [run for run in compared if run.state != "finished" or run.to_measure]
        total, done, begun = len(self.seeds) * len(self.variants), 0, time.monotonic()
        self.reporter.message(
            "study", f"{total} runs of {self.budget} each into {self.folder}; {total - len(todo)} are complete"
        )
        report: dict[str, Any] | None = None
        for seed in self.seeds:
            for variant in variants.values():
                missing = any((run.label, run.seed) == (variant.label, seed) for run in todo)
                if missing:
                    ends = _ends((time.monotonic() - begun) / done * (len(todo) - done)) if done else ""
                    number = total - len(todo) + done + 1
                    self.reporter.message("run", f"{variant.label}, seed {seed}: {number} of {total}{ends}")
                run = self.train(variant, seed, text)
                stopped = all_reduce_max(not run.finished or run.stopped_by is not None)
                if stopped or not self.measure(variant, seed, text):
                    self.reporter.message("stopped", "the same command resumes the study")
                    return report
                on_rank_zero(partial(self._measure_untrained, self.run_folder(variant, seed), text))
                done += missing
            # After each seed, so that a long study can be read before it is finished.
            seeds = [each for each in self.seeds if each <= seed]
            report = on_rank_zero(partial(self._report, variants, baseline, seeds))
        self.complete = True
        self.reporter.message("report", f"{self.folder / 'report.html'}; also .md, .csv and .json")
        return report

    def _report(self, variants: Mapping[str, Variant], baseline: str, seeds: Sequence[int]) -> dict[str, Any]:
        report = collect(self.folder, variants, self.tasks, baseline, seeds, planned_seeds=self.seeds)
        if self.tune_rate:
            found = {label: read_record(self._rates_file(variant)) for label, variant in self.variants.items()}
            report["rates"] = {"seed": TUNING_SEED, "recipes": found}
        write_report(self.folder, report)
        return report

    def run_folder(self, variant: Variant, seed: int) -> Path:
        """Return the directory of a run."""
        return self.folder / "runs" / variant.folder / f"seed-{seed}"

    def _state(self, variant: Variant, seed: int) -> Literal["missing", "begun", "finished", "of other settings"]:
        record = self.run_folder(variant, seed) / "run.json"
        if not record.is_file():
            return "missing"
        if record_problem(record):  # `pretrain` restores it.
            return "begun"
        found = read_record(record)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # Damaged text is made again by `run`.
            text = open_text(self.folder / "text")
            arguments = self._arguments(variant, seed, text, self._tokenizer_folder(variant))
            request = request_of(budget=self.budget, **arguments, **self.prepare, precision=self.options["precision"])
            if not is_same_run(found, request.to_json()):
                return "of other settings"
        return "finished" if found.get("result", {}).get("finished") else "begun"

    def _with_fixed_vocabulary(self, variant: Variant) -> Variant:
        size = f"{_VOCABULARY}={self.with_vocabulary(variant).tokenizer.vocab_size}"
        return replace(variant, overrides=(*variant.overrides, size), recipe=self.with_vocabulary(variant))

    def _rates(self, variant: Variant) -> list[Variant]:
        """Return the trials of learning rates: the fitted one first, from whose run the others take their rate."""
        trials = {factor: replace(variant, label=f"{variant.label} rate x{factor:g}") for factor in RATE_FACTORS}
        fitted = self.run_folder(trials[1.0], TUNING_SEED) / "recipe.json"
        rate = recipe_named(str(fitted)).training.learning_rate if fitted.is_file() else None
        return [
            each if factor == 1.0 or rate is None else _with_rate(each, float(f"{rate * factor:.3g}"))
            for factor, each in trials.items()
        ]

    def _rates_file(self, variant: Variant) -> Path:
        return self.folder / "measurements" / variant.folder / "rates.json"

    def _tuned(self, variant: Variant) -> Variant:
        """Return a recipe with its best learning rate, if that has been found and is not the fitted one."""
        file = self._rates_file(variant)
        if not self.tune_rate or not file.is_file() or record_problem(file):
            return variant
        found = read_record(file)
        return variant if found["best"] == 1.0 else _with_rate(variant, found["rates"][str(found["best"])]["rate"])

    def _tune(self, variant: Variant, text: StudyText) -> bool:
        """Train a recipe at each rate, on a seed that is not compared; returns False if a stop was requested.

        The best rate has the least held-out loss of the recipe's own objectives, on text of the run that is not the
        study's held-out text.
        """
        file = self._rates_file(variant)
        if on_rank_zero(lambda: file.is_file() and not record_problem(file)):
            return True
        found: dict[str, dict[str, Any]] = {}
        for number, factor in enumerate(RATE_FACTORS):
            trial = self._rates(variant)[number]  # Anew, since the first run has the fitted rate.
            self.reporter.message("rates", f"{trial.label}: {number + 1} of {len(RATE_FACTORS)}")
            loss: float | None = None
            metrics: dict[str, float] = {}
            flops = 0.0
            try:
                run = self.train(trial, TUNING_SEED, text)
            except TrainingError as error:  # It has diverged.
                self.reporter.message("warning", f"{trial.label}: {error}")
            else:
                if all_reduce_max(not run.finished or run.stopped_by is not None):
                    return False
                if not replace(self, tasks=(_MASKED,)).measure(trial, TUNING_SEED, text):
                    return False
                measured = on_rank_zero(partial(read_record, self.file(_MASKED, trial, TUNING_SEED)))["metrics"]
                metrics = {name: measured[name]["value"] for name in ("word_loss", "word_accuracy") if name in measured}
                weights: dict[str, float] = {each.kind: each.weight for each in variant.recipe.objectives}
                if run.held_out:
                    loss = sum(weights[kind] * each.loss for kind, each in run.held_out.items())
                flops = run.flops
            rate = recipe_named(str(self.run_folder(trial, TUNING_SEED))).training.learning_rate
            found[str(factor)] = {"rate": rate, "loss": loss, "flops": flops, **metrics}
        best = best_rate({factor: found[str(factor)]["loss"] for factor in RATE_FACTORS})
        if best is None:
            raise RecipeError(
                f"no rate of {variant.label} has a held-out loss to choose by",
                todo="Give more text, or a lower `--set training.learning_rate=`; or leave --tune-rate out.",
            )
        on_rank_zero(partial(write_record, file, {"best": best, "rates": found}))
        return True

    def with_vocabulary(self, variant: Variant) -> Recipe:
        """Return the recipe with the study's vocabulary size: the one that suits the baseline, at most the recipe's."""
        recipe = variant.recipe
        if any(name == _VOCABULARY for name, _ in parse_overrides(variant.overrides)):
            return recipe
        size = vocabulary_size(self.vocabulary_tokens, recipe.tokenizer.vocab_size)
        return recipe.replace(tokenizer=recipe.tokenizer.replace(vocab_size=size))

    def _tokenizer_folder(self, variant: Variant) -> Path | None:
        if variant.recipe.teacher is not None:
            return None  # The teacher's is used.
        spec = self.with_vocabulary(variant).tokenizer
        cleaning = override(Cleaning(), parse_overrides(self.clean))
        return self.folder / "tokenizers" / f"{spec.kind}-{fingerprint([spec, cleaning])}"

    def _tokenizer(self, variant: Variant, text: StudyText) -> Path | None:
        if (folder := self._tokenizer_folder(variant)) is None:
            return None
        spec = self.with_vocabulary(variant).tokenizer
        cleaning = override(Cleaning(), parse_overrides(self.clean))

        def make(folder: Path) -> None:
            cleaned = clean_corpus(text.train, cleaning=cleaning, **self.prepare, progress=self.reporter.stage)
            tokenizer = train_tokenizer(
                spec, cleaned, seed=0, cache=self.prepare["cache"], progress=self.reporter.stage
            )
            tokenizer.save(folder)

        return self._part(f"tokenizers/{folder.name}", lambda place: open_or_build(place, lambda made: made, make))

    def _part(self, name: str, make: Callable[[Path], Part]) -> Part:
        """Make a part of the study, or open it; raises CheckpointError if it is not the one that earlier runs used."""
        place, parts = self.folder / name, self.shared.setdefault("parts", {})
        contents = place / CONTENTS
        if place.exists() and not contents.exists() and name not in parts:  # of an earlier version
            write_record(contents, file_checksums(place))
        made = make(place)
        found = checksum(contents)
        if name not in parts:
            parts[name] = found
            self.write_shared()
        if found != parts[name]:
            raise CheckpointError(
                f"{place} was damaged, and is not the same if it is made again: the corpus or a library has changed",
                todo=f"Restore the corpus as it was and remove {place}, or choose another --out.",
            )
        return made

    def write_shared(self) -> None:
        """Write `study.json`, if it is to be kept."""
        if "format" in self.shared and rank() == 0:
            for place in _places(self.folder):
                write_record(place, self.shared)

    def train(self, variant: Variant, seed: int, text: StudyText) -> RunResult:
        """Train a run; a finished one is read."""
        with rank_zero_first():
            tokenizer = self._tokenizer(variant, text)
        amount: dict[str, Any] = {self.budget.unit: self.budget.amount}
        if self.budget.unit == "seconds":
            amount = {"minutes": self.budget.amount / 60}
        return pretrain(
            **self._arguments(variant, seed, text, tokenizer),
            out=self.run_folder(variant, seed),
            reporter=RunReporter(self.reporter, f"{variant.label}, seed {seed}"),
            **amount,
            **self.options,
            **self.prepare,
        )

    def _arguments(self, variant: Variant, seed: int, text: StudyText, tokenizer: Path | None) -> dict[str, Any]:
        """Return the arguments of `pretrain` that identify a run, but for budget and precision."""
        overrides = [each for each in variant.overrides if tokenizer is None or each.partition("=")[0] != _VOCABULARY]
        return {
            "corpus": text.train,
            "recipe": variant.base,
            "set": overrides,
            "tokenizer": tokenizer,
            "seed": seed,
            "clean": self.clean,
            # Rates are not chosen on the text that the study measures: trials hold out text of their own.
            "held_out": () if seed == TUNING_SEED else text.held_out or (),
        }

    def file(self, task: Task, variant: Variant, seed: int) -> Path:
        """Return the file of a measurement."""
        return self.folder / "measurements" / variant.folder / f"seed-{seed}" / f"{task.name}.json"

    def _definition(self, task: Task) -> dict[str, Any]:
        settings = list(self.finetune_set) if task.kind in (*BENCHMARKS, *KINDS) else []
        path = None if task.path is None else str(task.path)
        return {"version": _MEASURES, "kind": task.kind, "path": path, "set": settings}

    def _is_measured(self, task: Task, variant: Variant, seed: int) -> bool:
        return self._is_current(self.file(task, variant, seed), task)

    def _is_current(self, file: Path, task: Task) -> bool:
        if not file.is_file() or record_problem(file):
            return False
        return bool(read_record(file)["definition"] == self._definition(task))

    def _measure_untrained(self, run: Path, text: StudyText) -> None:
        """Measure the untrained model of a run's shape, unless that has been done; not in tasks of `finetune`."""
        place = self.folder / "measurements" / controls.UNTRAINED / controls.shape_of(run)
        missing = {
            task: file
            for task in self.tasks
            if task.kind in _PROBES and not self._is_current(file := place / f"{task.name}.json", task)
        }
        if not missing:
            return
        self.reporter.stage("measuring an untrained model of the same shape", 0, len(missing))
        with tempfile.TemporaryDirectory(prefix="maskwright-untrained-") as temporary:
            folder = Path(temporary)
            controls.save_untrained(run, self._counts(Tokenizer.from_folder(run), text), folder)
            model = load(folder, device=self.options["device"])
            for task, file in missing.items():
                metrics = {name: asdict(each) for name, each in self._probe(task, model, run, text).items()}
                write_record(file, {"definition": self._definition(task), "metrics": metrics})

    def _counts(self, tokenizer: Tokenizer, text: StudyText) -> IntArray:
        """Return the token counts of the training text."""
        if (found := self._token_counts.get(tokenizer.fingerprint)) is None:
            cleaning = override(Cleaning(), parse_overrides(self.clean))
            cleaned = clean_corpus(text.train, cleaning=cleaning, **self.prepare, progress=self.reporter.stage)
            found = self._token_counts[tokenizer.fingerprint] = controls.token_counts(tokenizer, cleaned)
        return found

    def measure(self, variant: Variant, seed: int, text: StudyText) -> bool:
        """Measure what is missing of a run; returns False if a stop was requested."""
        run = self.run_folder(variant, seed)
        tasks = (*self.tasks, *([Task(SAMPLES, SAMPLES)] if seed in self.seeds[:1] else []))
        missing = on_rank_zero(lambda: [task for task in tasks if not self._is_measured(task, variant, seed)])
        if not missing:
            return True
        model = load(run, device=self.options["device"])
        for number, task in enumerate(missing):
            if problem := record_problem(file := self.file(task, variant, seed)):
                self.reporter.message("restored", f"{variant.label}, seed {seed}: {problem}; measured again")
            self.reporter.stage(_MEASURING.get(task.name, f"measuring {task.name}"), number, len(missing))
            content: dict[str, Any]
            if task.kind == SAMPLES:
                content = on_rank_zero(partial(probes.samples, model, text, run))
            elif task.kind in (*_PROBES, "cost"):
                measured = on_rank_zero(partial(self._probe, task, model, run, text))
                content = {"metrics": {name: asdict(each) for name, each in measured.items()}}
            elif (tuned := self._finetune(task, variant, seed, run)) is not None:
                content = {"metrics": tuned}
            else:
                return False
            if rank() == 0:
                write_record(file, {"definition": self._definition(task), **content})
        return True

    def _probe(self, task: Task, model: Model, run: Path, text: StudyText) -> probes.Measurements:
        if task.kind == "masked":
            return probes.masked_words(model, text, self._counts(model.tokenizer, text))
        if task.kind == "intrinsic":
            return intrinsic(model, text)
        if task.kind == "cost":
            return probes.cost(model, text, run)
        assert task.path is not None
        found = probes.minimal_pairs(
            model, task.path, lambda done, of: self.reporter.stage(f"measuring {task.name}", done, of)
        )
        return {task.name if name == "minimal_pairs" else f"{task.name}/{name}": value for name, value in found.items()}

    def _finetune(self, task: Task, variant: Variant, seed: int, run: Path) -> dict[str, Any] | None:
        data: dict[str, Any] = {"data": task.path} if task.kind in BENCHMARKS else {"train": task.path}
        done = finetune(
            run,
            task=task.kind,
            out=self.folder / "finetuning" / variant.folder / f"seed-{seed}" / task.name,
            seeds=1,
            seed=seed,
            set=self.finetune_set,
            reporter=RunReporter(self.reporter, f"{variant.label}, seed {seed}, {task.name}"),
            **data,
            **self.options,
        )
        if all_reduce_max(done.stopped_by is not None) or done.results is None:
            return None
        part = "test" if done.results.spread("test") else "dev"
        metric, count = done.results.main_metric, int(done.results.data[part]["examples"])
        trivial = next(iter(done.results.baselines.values()), {}).get(part, {}).get(metric)  # the most frequent label
        value = done.results.spread(part)[metric].mean
        measured = probes.Measurement(value=value, count=count, by=part, chance=trivial)
        return {task.name: {**asdict(measured), "metric": metric}}


def _with_rate(variant: Variant, rate: float) -> Variant:
    override_of_rate = f"training.learning_rate={rate!r}"
    recipe = override(variant.recipe, parse_overrides([override_of_rate]))
    return replace(variant, overrides=(*variant.overrides, override_of_rate), recipe=recipe)


def _ends(seconds: float) -> str:
    left = f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f", about {left} left, until {time.strftime('%a %H:%M', time.localtime(time.time() + seconds))}"
