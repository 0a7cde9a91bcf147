"""One experiment: train a recipe with a seed and a budget on the study's text, and measure the trained model.

Runs, tokenizers and measurements are kept in the study's folder (see `compare`); what is there is not made again.
"""

import contextlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from maskwright.core.errors import RecipeError
from maskwright.core.spec import fingerprint, override, parse_overrides
from maskwright.core.storage.checksums import read_record, record_problem, write_record
from maskwright.data.cache import open_or_build
from maskwright.data.cleaning.store import CleanCorpus, clean_corpus
from maskwright.data.cleaning.text import Cleaning
from maskwright.data.shards.corpus import Corpus
from maskwright.data.shards.tokenize import tokenize_corpus
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.tokenizers.training import train_tokenizer
from maskwright.finetuning.finetune import check_task, finetune
from maskwright.finetuning.published.benchmarks import BENCHMARKS
from maskwright.finetuning.tasks import KINDS
from maskwright.fitting.budget import Budget
from maskwright.fitting.resolve import CorpusStatistics, ResolvedRun, Speed, resolve, vocabulary_size
from maskwright.inference.model import Model, load
from maskwright.recipes.catalog import resolve as resolve_recipe
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.reporting.reporter import Reporter
from maskwright.study import probes
from maskwright.study.intrinsic import intrinsic
from maskwright.study.record import StudyRecord
from maskwright.study.request import SAMPLES, TUNING_SEED, Task, Variant
from maskwright.study.text import StudyText, open_text, prepare_text
from maskwright.training.pretrain import RunResult, pretrain, request_of
from maskwright.training.ranks.distributed import all_reduce_max, on_rank_zero, rank, rank_zero_first
from maskwright.training.runs.run_directory import is_same_run

RunState = Literal["missing", "begun", "finished", "of other settings"]
MASKED = Task("masked", "masked")
_VOCABULARY = "tokenizer.vocab_size"
_PROBES = ("masked", "intrinsic", "minimal-pairs")
_VERSION = 2
"""Of what measurements hold; older ones are made again."""
_FINETUNING_SYSTEM = "bert"
"""System whose published fine-tuning settings all recipes have: otherwise SpanBERT would train three times as long on a
sentence as BERT."""
_STAGES = {
    "masked": "measuring masked words",
    "intrinsic": "measuring sentence order and other probes",
    "cost": "measuring speed and size",
    SAMPLES: "filling masks in example passages",
}


class StoppedError(Exception):
    """The user stopped a run; what is done is kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trained run, and the measurements of its tasks by metric."""

    run: RunResult
    metrics: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True, kw_only=True)
class Experiment:
    """Settings that all runs of a study share.

    Attributes:
        record: Of the study; it names the folder.
        vocabulary_tokens: The vocabulary suits a run of so many tokens.
        clean, finetune_set: Overrides of the cleaning, and of hyperparameters.
        options: `device` and `precision`.
        prepare: `cache` and `workers`.
    """

    record: StudyRecord
    vocabulary_tokens: float
    clean: tuple[str, ...] = ()
    finetune_set: tuple[str, ...] = ()
    options: dict[str, Any]
    prepare: dict[str, Any]
    reporter: Reporter

    @property
    def folder(self) -> Path:
        return self.record.folder

    @property
    def cleaning(self) -> Cleaning:
        return override(Cleaning(), parse_overrides(self.clean))

    def train_and_measure(
        self, variant: Variant, seed: int, budget: Budget, text: StudyText, tasks: Sequence[Task]
    ) -> Outcome:
        """Train a recipe and measure the run in these tasks, as far as that is not done.

        Raises StoppedError if the user stopped it, and MaskwrightError as `pretrain`, `finetune` and the probes do.
        """
        run = self._train(variant, seed, budget, text)
        if all_reduce_max(not run.finished or run.stopped_by is not None):
            raise StoppedError
        self._measure(variant, seed, text, tasks)
        files = [variant.measurement(self.folder, seed, task.name) for task in tasks if task.kind != SAMPLES]
        records = on_rank_zero(lambda: [read_record(file) for file in files])
        return Outcome(run, {name: value for record in records for name, value in record["metrics"].items()})

    def prepare_text(self, sources: Sequence[str]) -> StudyText:
        """Split the corpus into the text of training and the text of measurements, or open both."""
        split = partial(prepare_text, corpus=sources, cleaning=self.cleaning, progress=self.reporter.stage)
        with rank_zero_first():
            return self.record.open_part("text", partial(split, **self.prepare))

    def state(self, variant: Variant, seed: int, budget: Budget) -> RunState:
        """Return whether a run is there, and whether it is the run of these settings."""
        file = variant.run_folder(self.folder, seed) / "run.json"
        if not file.is_file():
            return "missing"
        if record_problem(file):  # `pretrain` restores it.
            return "begun"
        record = read_record(file)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # Damaged text is made again by `compare`.
            text = open_text(self.folder / "text")
            arguments = self._arguments(variant, seed, text, self._tokenizer_folder(variant))
            request = request_of(budget=budget, **arguments, **self.prepare, precision=self.options["precision"])
            if not is_same_run(record, request.to_json()):
                return "of other settings"
        return "finished" if record.get("result", {}).get("finished") else "begun"

    def unmeasured(self, variant: Variant, seed: int, tasks: Sequence[Task]) -> list[Task]:
        return [task for task in tasks if not self._is_current(variant.measurement(self.folder, seed, task.name), task)]

    def with_vocabulary(self, variant: Variant) -> Variant:
        """Return the recipe with the study's vocabulary size: the one that suits the baseline, at most the recipe's."""
        if _VOCABULARY in dict(parse_overrides(variant.overrides)):
            return variant
        size = vocabulary_size(self.vocabulary_tokens, variant.recipe.tokenizer.vocab_size)
        return variant.with_override(f"{_VOCABULARY}={size}")

    def measure_untrained(self, variant: Variant, seed: int, text: StudyText, tasks: Sequence[Task]) -> None:
        """Measure the untrained model of a run's shape, unless that has been done; not in tasks of `finetune`."""
        run = variant.run_folder(self.folder, seed)
        folder = self.folder / "measurements" / probes.UNTRAINED / probes.shape_of(run)
        files = {task: folder / f"{task.name}.json" for task in tasks if task.kind in _PROBES}
        missing = {task: file for task, file in files.items() if not self._is_current(file, task)}
        if not missing:
            return
        stage = "measuring an untrained model of the same shape (tasks)"
        self.reporter.stage(stage, 0, len(missing))
        with tempfile.TemporaryDirectory(prefix="maskwright-untrained-") as temporary:
            saved = Path(temporary)
            probes.save_untrained(run, self._tokens(run, text), saved)
            model = load(saved, device=self.options["device"])
            for number, (task, file) in enumerate(missing.items()):
                self.reporter.stage(stage, number, len(missing))
                metrics = {name: asdict(each) for name, each in self._probe(task, model, run, text).items()}
                write_record(file, {"definition": self._definition(task), "metrics": metrics})

    def _train(self, variant: Variant, seed: int, budget: Budget, text: StudyText) -> RunResult:
        with rank_zero_first():
            tokenizer = self._tokenizer(variant, text)
        unit, amount = budget.unit, budget.amount
        spend: dict[str, Any] = {"minutes": amount / 60} if unit == "seconds" else {unit: amount}
        return pretrain(
            **self._arguments(variant, seed, text, tokenizer),
            out=variant.run_folder(self.folder, seed),
            reporter=RunReporter(self.reporter, f"{variant.label}, seed {seed}"),
            **spend,
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
            "held_out": () if seed == TUNING_SEED else text.held_out,
        }

    def _tokenizer_folder(self, variant: Variant) -> Path | None:
        if variant.recipe.teacher is not None:
            return None  # The teacher's is used.
        spec = self.with_vocabulary(variant).recipe.tokenizer
        return self.folder / "tokenizers" / f"{spec.kind}-{fingerprint([spec, self.cleaning])}"

    def _tokenizer(self, variant: Variant, text: StudyText) -> Path | None:
        if (folder := self._tokenizer_folder(variant)) is None:
            return None
        spec = self.with_vocabulary(variant).recipe.tokenizer

        def make(folder: Path) -> None:
            cleaned, cache = self._clean(text), self.prepare["cache"]
            train_tokenizer(spec, cleaned, seed=0, cache=cache, progress=self.reporter.stage).save(folder)

        return self.record.open_part(
            f"tokenizers/{folder.name}", lambda path: open_or_build(path, lambda made: made, make)
        )

    def _clean(self, text: StudyText) -> CleanCorpus:
        return clean_corpus(text.train, cleaning=self.cleaning, **self.prepare, progress=self.reporter.stage)

    def _tokens(self, run: Path, text: StudyText) -> Corpus:
        """Open the tokens on which a run was trained."""
        words, tokenizer = resolve_recipe(str(run)).words, Tokenizer.from_folder(run)
        return tokenize_corpus(self._clean(text), tokenizer, words=words, **self.prepare, progress=self.reporter.stage)

    def _definition(self, task: Task) -> dict[str, Any]:
        settings = list(self.finetune_set) if task.kind in (*BENCHMARKS, *KINDS) else []
        path = None if task.path is None else str(task.path)
        return {"version": _VERSION, "kind": task.kind, "path": path, "set": settings}

    def _is_current(self, file: Path, task: Task) -> bool:
        if not file.is_file() or record_problem(file):
            return False
        return bool(read_record(file)["definition"] == self._definition(task))

    def _measure(self, variant: Variant, seed: int, text: StudyText, tasks: Sequence[Task]) -> None:
        run = variant.run_folder(self.folder, seed)
        missing = on_rank_zero(partial(self.unmeasured, variant, seed, tasks))
        if not missing:
            return
        model = load(run, device=self.options["device"])
        for number, task in enumerate(missing):
            if problem := record_problem(file := variant.measurement(self.folder, seed, task.name)):
                self.reporter.message("restored", f"{variant.label}, seed {seed}: {problem}; measured again")
            stage = _STAGES.get(task.name, f"measuring {task.name}")
            self.reporter.stage(f"{stage} (tasks)", number, len(missing))
            content: dict[str, Any]
            if task.kind == SAMPLES:
                content = on_rank_zero(partial(probes.samples, model, text, run))
            elif task.kind in (*_PROBES, "cost"):
                measured = on_rank_zero(partial(self._probe, task, model, run, text))
                content = {"metrics": {name: asdict(each) for name, each in measured.items()}}
            else:
                content = {"metrics": self._finetune(task, variant, seed, run)}
            if rank() == 0:
                write_record(file, {"definition": self._definition(task), **content})

    def _probe(self, task: Task, model: Model, run: Path, text: StudyText) -> probes.Measurements:
        if task.kind == "masked":
            return probes.masked_words(model, text, self._tokens(run, text).token_counts)
        if task.kind == "intrinsic":
            return intrinsic(model, text)
        if task.kind == "cost":
            return probes.cost(model, text, run)
        assert task.path is not None
        measured = probes.minimal_pairs(
            model, task.path, lambda done, of: self.reporter.stage(f"measuring {task.name} (paradigms)", done, of)
        )
        return {
            task.name if name == "minimal_pairs" else f"{task.name}/{name}": value for name, value in measured.items()
        }

    def _finetune(self, task: Task, variant: Variant, seed: int, run: Path) -> dict[str, Any]:
        data: dict[str, Any] = {"data": task.path} if task.kind in BENCHMARKS else {"train": task.path}
        done = finetune(
            run,
            task=task.kind,
            out=self.folder / "finetuning" / variant.folder / f"seed-{seed}" / task.name,
            system=_FINETUNING_SYSTEM,
            seeds=1,
            seed=seed,
            set=self.finetune_set,
            reporter=RunReporter(self.reporter, f"{variant.label}, seed {seed}, {task.name}"),
            **data,
            **self.options,
        )
        if all_reduce_max(done.stopped_by is not None) or done.results is None:
            raise StoppedError
        part = "test" if done.results.spread("test") else "dev"
        metric, count = done.results.main_metric, int(done.results.data[part]["examples"])
        trivial = next(iter(done.results.baselines.values()), {}).get(part, {}).get(metric)  # the most frequent label
        value = done.results.spread(part)[metric].mean
        measured = probes.Measurement(value=value, count=count, by=part, chance=trivial)
        return {task.name: {**asdict(measured), "metric": metric}}


class RunReporter(Reporter):
    """Passes on progress, health and warnings of a run; its other lines would fill screens in a study."""

    def __init__(self, reporter: Reporter, label: str) -> None:
        self._reporter, self._label = reporter, label

    def message(self, topic: str, text: str) -> None:
        if topic in ("warning", "health", "resuming", "restored"):
            self._reporter.message(topic, f"{self._label}: {text}")

    def stage(self, name: str, done: int, total: int | None) -> None:
        self._reporter.stage(name, done, total)

    def training(self, share: float, text: str) -> None:
        self._reporter.training(share, f"{self._label}  {text}")

    def close(self) -> None:
        self._reporter.close()


def check_tasks(tasks: Sequence[Task], finetune_set: Sequence[str]) -> None:
    """Raise MaskwrightError if the data of a task, or a hyperparameter, cannot be used; before any training."""
    if finetune_set and not any(task.kind in (*BENCHMARKS, *KINDS) for task in tasks):
        raise RecipeError("--finetune-set without a task of `finetune` in --tasks", hint="Leave it out, or add a task.")
    for task in tasks:
        if task.path is not None and task.kind == "minimal-pairs":
            probes.read_minimal_pairs(task.path)
        elif task.path is not None:
            check_task(task.kind, task.path, finetune_set)


def fit_variant(
    variant: Variant, budget: Budget, speed: Speed = Speed(), corpus_tokens: float = math.inf
) -> ResolvedRun:
    """Fit a recipe as `pretrain` does, with sequences of full length."""
    options: dict[str, Any] = {"fixed": variant.fixed, "speed": speed}
    before = resolve(variant.recipe, budget, CorpusStatistics(chinese_share=1.0), **options).recipe
    lengths = tuple(float(phase.max_length) for phase in before.training.phases)
    corpus = CorpusStatistics(chinese_share=1.0, tokens=corpus_tokens, mean_lengths=lengths)
    return resolve(before, budget, corpus, **options)


def flops_per_token(recipe: Recipe) -> float:
    """Return the training FLOPs per token of a fitted recipe; each length phase has its share of the tokens."""
    vocab_size = recipe.tokenizer.vocab_size
    return sum(
        phase.share * training_flops_per_token(recipe, vocab_size, length=phase.max_length)
        for phase in recipe.training.phases
    )
