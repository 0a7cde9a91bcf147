"""Results of fine-tunings and evaluations: scores of every seed, their mean and spread, model cards."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from maskwright.checkpoints.card_facts import CardFacts
from maskwright.checkpoints.families import family_named
from maskwright.core.extras import imported
from maskwright.core.storage.files import write_json, write_text
from maskwright.core.types import HeadKind, MatmulPrecision
from maskwright.finetuning.baselines import FROZEN
from maskwright.finetuning.examples import ExampleFile
from maskwright.finetuning.model.fine_tuned import FineTunedModel
from maskwright.finetuning.published.benchmarks import BENCHMARKS
from maskwright.reporting.markdown import escape, without_html
from maskwright.reporting.table import Table
from maskwright.training.ranks.device import Precision

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One seed: metrics of the weights of its best epoch by dev.

    `best_epoch` is 0 for the untouched model; `test` is None without labeled test examples; `is_rising`: the last epoch
    is better on dev than all before it. `examples` are those trained in all epochs, `seconds` the time of the steps.
    """

    seed: int
    steps: int
    best_epoch: float
    dev: Metrics
    test: Metrics | None = None
    is_rising: bool = False
    examples: int | None = None
    seconds: float | None = None
    examples_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A metric over the seeds.

    `sd` is the sample standard deviation (n - 1), None for a single seed; `best` the value of the kept seed, the best
    one by the main metric on the development examples.
    """

    mean: float
    sd: float | None
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All results of a fine-tuning. Reproducible but for times; without output paths.

    `task` is the benchmark's name, or the kind of task; `data` by part holds file name, numbers of examples, skipped
    rows, truncated examples; `task_settings` are the task's fields, except those that each seed tunes; `pairs`: inputs
    are pairs of texts; `notes` are caveats; `baselines` are metrics of simpler models by name and part; `sizes` those
    of embeddings truncated to a number of dimensions; `trials` the "settings" and the "score" of a search's trials,
    None if a trial diverged.
    """

    task: str
    kind: str
    model: str
    data: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    rows: tuple[SeedRow, ...]
    notes: tuple[str, ...] = ()
    from_scratch: bool = False
    precision: Precision = "fp32"
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    pairs: bool = False
    baselines: Mapping[str, Mapping[str, Metrics]] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, Metrics]] = field(default_factory=dict)
    trials: tuple[Mapping[str, Any], ...] = ()

    @property
    def title(self) -> str:
        return f"{self.task}: {self.model}" + " from scratch" * self.from_scratch

    @property
    def source(self) -> str:
        """The model without the folders of its path, which cards do not publish."""
        return Path(self.model).name if Path(self.model).expanduser().is_dir() else self.model

    @property
    def main_metric(self) -> str:
        """The metric used for selection; "" if nothing was evaluated (embeddings of texts without scores)."""
        return next(iter(self.rows[0].dev), "")

    @property
    def best(self) -> SeedRow:
        """The best seed; of equal ones the first."""
        return max(self.rows, key=lambda row: (row.dev.get(self.main_metric, 0.0), -row.seed))

    @property
    def advice(self) -> tuple[str, ...]:
        """Suggestions: a sentence for each baseline that is no worse on dev, one if dev still rises."""
        main, lines = self.main_metric, list[str]()
        for name, scores in self.baselines.items() if main and self.best.best_epoch else ():
            model, baseline = self.best.dev[main], scores["dev"][main]
            if baseline >= model:
                more = "" if self.pairs or self.settings.get("frozen") else "`--set frozen=true`, "
                hint = (
                    f" Try {more}another `--set learning_rate=...`, or more steps, and a new --out."
                    * name.startswith(FROZEN)
                )
                if hint and self.kind == "regression" and self.pairs:
                    hint = f" For similarity use `--task embedding`, which trains the vectors of single texts.{hint}"
                shown = f"{main} {model:.4g} against {baseline:.4g}"
                lines.append(f"On dev the model is no better than the baseline {name}: {shown}.{hint}")
        if self.best.is_rising:
            if self.settings.get("steps") is None:  # Epochs that the user sets keep the published batch size.
                more = f"--set epochs={2 * self.settings['epochs']:.12g} --set batch_size={self.settings['batch_size']}"
            else:
                more = f"--set steps={2 * self.settings['steps']}"
            lines.append(f"Dev still rises in the last epoch: try `{more}` and a new --out.")
        return tuple(lines)

    def spread(self, part: str) -> dict[str, Spread]:
        """Return each metric over the seeds for "dev" or "test"; empty without test scores."""
        best = getattr(self.best, part) or {}
        spreads = {}
        for name in best:
            values = [metrics[name] for row in self.rows if (metrics := getattr(row, part)) is not None]
            sd = statistics.stdev(values) if len(values) > 1 else None
            spreads[name] = Spread(statistics.fmean(values), sd, best[name])
        return spreads

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        return {
            "main_metric": self.main_metric,
            "best_seed": self.best.seed,
            **{part: {name: asdict(spread) for name, spread in self.spread(part).items()} for part in ("dev", "test")},
            "advice": list(self.advice),
            "seeds": fields.pop("rows"),
            **fields,
        }

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row per seed; `baselines` are apart, so that means over rows are those of seeds.

        The columns are "seed", "steps", "best_epoch", "examples", "seconds", "examples_per_second", "dev_METRIC" and
        "test_METRIC". Raises DataError if pandas is not installed.
        """
        pandas = imported("pandas", "to_pandas()", "hub")
        columns = ("seed", "steps", "best_epoch", "examples", "seconds", "examples_per_second")
        return pandas.DataFrame(
            [
                {name: getattr(row, name) for name in columns}
                | {f"dev_{name}": value for name, value in row.dev.items()}
                | {f"test_{name}": value for name, value in (row.test or {}).items()}
                for row in self.rows
            ]
        )

    def table(self) -> Table:
        """Return seeds, mean, standard deviation and best, then the baselines.

        With one seed it has one row, and the baselines.
        """
        spreads = {(part, name): spread for part in ("dev", "test") for name, spread in self.spread(part).items()}
        columns = ["", *(f"{name} ({part})" for part, name in spreads), "best epoch"]
        digits = 2 if self.kind == "question_answering" else 4  # in percent, others in [0, 1]

        def row(title: str, values: Iterable[float | None], epoch: str = "") -> list[str]:
            return [title, *("-" if value is None else f"{value:.{digits}f}" for value in values), epoch]

        body = [
            row(
                f"seed {each.seed}",
                [(getattr(each, part) or {}).get(name) for part, name in spreads],
                f"{each.best_epoch:g}",
            )
            for each in self.rows
        ]
        if len(self.rows) > 1:
            body.append(row("mean", [spread.mean for spread in spreads.values()]))
            body.append(row("standard deviation", [spread.sd for spread in spreads.values()]))
            body.append(row(f"best (seed {self.best.seed})", [spread.best for spread in spreads.values()]))
        others = {f"{size} dimensions": scores for size, scores in self.sizes.items()}
        others |= {f"baseline: {title}": scores for title, scores in self.baselines.items()}
        for title, scores in others.items():
            body.append(row(title, [scores.get(part, {}).get(name) for part, name in spreads]))
        return Table(columns, body, right=range(1, len(columns)))

    def search_table(self) -> Table:
        """Return the trials of a search; no rows without one."""
        columns = ["trial", *(self.trials[0]["settings"] if self.trials else ()), f"{self.main_metric} (dev)"]
        scores = ["-" if trial["score"] is None else f"{trial['score']:.4f}" for trial in self.trials]
        rows = [
            [str(number), *(f"{value:.3g}" for value in trial["settings"].values()), score]
            for number, (trial, score) in enumerate(zip(self.trials, scores, strict=True))
        ]
        return Table(columns, rows, right=range(len(columns)))

    def page(self) -> str:
        """Return results.md: scores, notes, data, settings."""
        tested = " test: predicted once, after selection." if self.spread("test") else ""
        legend = f"dev: used to select each seed's best epoch and the best seed.{tested}"
        advice = [f"\n{without_html(line)}" for line in self.advice]
        searched = ["", "## Search", "", *self.search_table().markdown()] if self.trials else []
        lines = [f"# {escape(self.title)}", "", *self.score_lines(legend), *advice, *searched, *self.data_lines()]
        return "\n".join(lines) + "\n"

    def score_lines(self, legend: str) -> list[str]:
        return [*self.table().markdown(), "", legend, *(f"\n{without_html(note)}" for note in self.notes)]

    def data_lines(self) -> list[str]:
        parts = [
            [part, f"{file['examples']:,}", f"{file['skipped']:,}", f"{file['truncated']:,}", file["name"]]
            for part, file in self.data.items()
        ]
        of_task = {f"task.{name}": value for name, value in self.task_settings.items()}
        settings = {**self.settings, **of_task, "precision": self.precision}
        return [
            *("", "## Data", ""),
            *Table(("", "examples", "skipped rows", "truncated", "file"), parts, right=(1, 2, 3)).markdown(),
            *("", "## Settings", ""),
            *Table(("setting", "value"), [(name, str(value)) for name, value in settings.items()]).markdown(),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """The state of a fine-tuning. `folder`, once it is finished, is also a Hugging Face model folder.

    If it is not finished, `results` is None and the same call resumes. `stopped_by` is the signal that interrupted it,
    or that came while it finished.
    """

    folder: Path
    finished: bool
    results: Results | None
    stopped_by: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "finished": self.finished,
            "stopped_by": self.stopped_by,
            "results": None if self.results is None else self.results.to_json(),
        }


def write_results(folder: Path, results: Results, card: str) -> None:
    write_json(folder / "results.json", results.to_json())
    write_text(folder / "results.md", results.page())
    write_text(folder / "README.md", card)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of an evaluation; `task` is the kind of task.

    `truncated` counts the examples that were. `metrics` begin with the main one. `by_class` has precision,
    recall, F1 and number of examples of each class or entity type, `confusion` for each true class how often each class
    was predicted; both are empty for other tasks.
    """

    model: str
    task: str
    file: str
    examples: int
    skipped: int
    truncated: int
    precision: MatmulPrecision
    metrics: dict[str, float]
    by_class: dict[str, dict[str, float]]
    confusion: dict[str, dict[str, int]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_pandas(self) -> Any:
        """Return a DataFrame of one row: the fields but `by_class` and `confusion`, and a column for each metric.

        Raises DataError if pandas is not installed.
        """
        pandas = imported("pandas", "to_pandas()", "hub")
        nested = ("metrics", "by_class", "confusion")
        fields = {name: value for name, value in self.to_json().items() if name not in nested}
        return pandas.DataFrame([fields | self.metrics])


def data_of(parts: Mapping[str, ExampleFile[Any]], truncated: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return `Results.data` of the parts; `truncated` are numbers of examples by part."""
    return {
        name: {
            "name": Path(file.name).name,
            "examples": len(file.examples),
            "skipped": len(file.skipped),
            "truncated": truncated[name],
        }
        for name, file in parts.items()
    }


_TAGS: dict[HeadKind, str] = {
    "sequence": "text-classification",
    "token": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
_LABELS_SHOWN = 30


def card(
    name: str,
    results: Results,
    facts: CardFacts,
    *,
    library: str,
    tag: str,
    about: Sequence[str],
    legend: str,
    use: Sequence[str],
) -> str:
    """Return the text of a model card, README.md; `library` and `tag` are names of the model hub.

    `facts` are those of the card of the model that was fine-tuned.
    """
    benchmark = BENCHMARKS.get(results.task)
    language = "" if benchmark is None else benchmark.language
    lines = [
        *facts.front_matter(library, tag, language=language, tags=("maskwright", results.task)),
        *(f"# {escape(name)}", "", *about),
        *("", "## Scores", "", *results.score_lines(legend), *results.data_lines()),
        *("", "## Use", "", "```python", *use, "```"),
    ]
    return "\n".join(lines) + "\n"


def model_card(name: str, model: FineTunedModel, results: Results, facts: CardFacts) -> str:
    task, best, config = model.task, results.best, model.encoder.config
    architecture = family_named(model.family).tasks[task.head].architecture
    made = "trained from scratch with the shape and tokenizer of" if results.from_scratch else "fine-tuned from"
    kind = f" ({task.kind})" if task.kind != results.task else ""
    about = [
        f"A {architecture} for {results.task}{kind}, {made} {escape(results.source)}: {config.num_layers} "
        f"layers, hidden size {config.hidden_size}, inputs of up to {model.max_length} tokens."
    ]
    if task.labels:
        more = f" and {len(task.labels) - _LABELS_SHOWN} more" if len(task.labels) > _LABELS_SHOWN else ""
        about += ["", "Labels: " + ", ".join(map(escape, task.labels[:_LABELS_SHOWN])) + more + "."]
    legend = (
        f"These are the weights of seed {best.seed} after epoch {best.best_epoch:g}, selected by {results.main_metric} "
        "on the development examples (dev), so that dev scores are slightly optimistic. Nothing was selected on test "
        "examples."
    )
    quoted = json.dumps(name)
    if task.head in ("span", "choice"):
        use = [f"from transformers import {architecture}", "", f"model = {architecture}.from_pretrained({quoted})"]
    else:
        # "first": one tag per word, that of its first token, as in training; else subwords are entities of their own.
        more = ', aggregation_strategy="first"' * (task.head == "token")
        text = '{"text": "A text.", "text_pair": "Another text."}' if results.pairs else '"A text."'
        call = f'pipeline("{_TAGS[task.head]}", model={quoted}{more})({text})'
        use = ["from transformers import pipeline", "", call]
    return card(name, results, facts, library="transformers", tag=_TAGS[task.head], about=about, legend=legend, use=use)
