"""Results of a fine-tuning: one row per seed, mean, standard deviation, best; as JSON, table and model card."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from maskwright.core.files import write_text
from maskwright.core.types import HeadKind
from maskwright.finetuning.benchmarks import BENCHMARKS
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.readers import ReadAs
from maskwright.finetuning.readers.options import as_names
from maskwright.huggingface.families import family_named
from maskwright.training.device import Precision

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One seed.

    Attributes:
        seed: Its number.
        steps: Steps done.
        best_epoch: Epochs after which the weights were kept.
        dev: Metrics of those weights on the development examples, by which they were chosen.
        test: The same on the test examples, by which nothing was chosen; None where these have no labels or are absent.
    """

    seed: int
    steps: int
    best_epoch: float
    dev: Metrics
    test: Metrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """One point of the grid.

    Attributes:
        values: The fields of the grid, and their values here.
        dev: The main metric on the development examples, by which the point was chosen, with the first seed; None
            where training broke off because the loss was no number.
        chosen: Whether it was.
    """

    values: Mapping[str, Any]
    dev: float | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """A metric over the seeds.

    Attributes:
        mean: Their mean.
        sd: Their sample standard deviation (n - 1); None of a single seed.
        best: The value of the seed whose model is kept: the best by the main metric on the development examples.
    """

    mean: float
    sd: float | None
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that was measured. It holds no times and no places: the same work gives the same results.

    Attributes:
        task: The benchmark's name, or the kind of task.
        kind: The kind of task.
        model: What was fine-tuned, as it was called.
        from_scratch: Whether its weights were drawn anew, and only its shape and its tokenizer are its own.
        data: For "train", "dev" and, where there is one, "test": counts of examples and of rows left out, and the name.
        settings: All hyperparameters.
        task_settings: What can be set of the task (`doc_stride`, `scale`), those left out that each seed chooses.
        pairs: Whether two texts are read at a time.
        rows: A row a seed, in order.
        grid: A row a point of the grid; empty without one.
        notes: What the reader must know: a held-out share instead of a development file, a test file without labels.
        precision: What matrix products were computed in, "fp32" or "bf16".
    """

    task: str
    kind: str
    model: str
    data: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    rows: tuple[SeedRow, ...]
    grid: tuple[GridRow, ...] = ()
    notes: tuple[str, ...] = ()
    from_scratch: bool = False
    precision: Precision = "fp32"
    task_settings: Mapping[str, Any] = field(default_factory=dict)
    pairs: bool = False

    @property
    def title(self) -> str:
        """What was fine-tuned for what, in a line."""
        return f"{self.task}: {self.model}" + " from scratch" * self.from_scratch

    @property
    def main_metric(self) -> str:
        """The metric that everything is chosen by."""
        return next(iter(self.rows[0].dev))

    @property
    def best(self) -> SeedRow:
        """The seed whose model is kept; of equal ones the first."""
        return max(self.rows, key=lambda row: (row.dev[self.main_metric], -row.seed))

    def spread(self, part: str) -> dict[str, Spread]:
        """Return each metric over the seeds.

        Args:
            part: "dev" or "test"; empty if the latter was not measured.
        """
        if part == "dev":
            return _spread([row.dev for row in self.rows], self.best.dev)
        measured = [row.test for row in self.rows if row.test is not None]
        return _spread(measured, self.best.test) if measured and self.best.test is not None else {}

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "task": self.task,
            "kind": self.kind,
            "model": self.model,
            "from_scratch": self.from_scratch,
            "main_metric": self.main_metric,
            "best_seed": self.best.seed,
            **{part: {name: asdict(spread) for name, spread in self.spread(part).items()} for part in ("dev", "test")},
            "seeds": [asdict(row) for row in self.rows],
            "grid": [asdict(row) for row in self.grid],
            "data": {name: dict(counts) for name, counts in self.data.items()},
            "settings": dict(self.settings),
            "task_settings": dict(self.task_settings),
            "precision": self.precision,
            "notes": list(self.notes),
        }

    @property
    def all_settings(self) -> Mapping[str, Any]:
        """The hyperparameters, the task's own settings, and how exactly was computed."""
        of_task = {f"task.{name}": value for name, value in self.task_settings.items()}
        return {**self.settings, **of_task, "precision": self.precision}

    @property
    def _digits(self) -> int:
        """Digits after the point: answers are scored in percent, all else as shares and correlations."""
        return 2 if self.kind == "question_answering" else 4

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return (columns, rows) of the table: the seeds, then mean, standard deviation and best."""
        digits = self._digits
        parts = [part for part in ("dev", "test") if self.spread(part)]
        spreads = {part: self.spread(part) for part in parts}
        columns = ["", *(f"{name} ({part})" for part in parts for name in spreads[part]), "best epoch"]
        body = [
            [
                f"seed {row.seed}",
                *(_written(value, digits) for part in parts for value in (_of(row, part) or {}).values()),
                f"{row.best_epoch:g}",
            ]
            for row in self.rows
        ]
        for label, pick in (("mean", "mean"), ("standard deviation", "sd"), (f"best (seed {self.best.seed})", "best")):
            values = [_written(getattr(spread, pick), digits) for part in parts for spread in spreads[part].values()]
            body.append([label, *values, ""])
        return columns, body

    def markdown(self) -> str:
        """Return the table with what must be said beside it."""
        columns, body = self.table()
        lines = [f"# {self.title}", "", *markdown_table(columns, body), ""]
        lines.append(
            "dev: the weights of each seed's best epoch, and the best seed, were chosen on these examples. "
            "test: measured once, after all was chosen."
            if self.spread("test")
            else "dev: the weights of each seed's best epoch, and the best seed, were chosen on these examples."
        )
        lines += [f"\n{note}" for note in self.notes]
        if self.grid:
            fields = list(self.grid[0].values)
            lines += ["", "## Grid", ""]
            lines += markdown_table(
                [*fields, f"{self.main_metric} (dev)", ""],
                [
                    [
                        *(str(row.values[name]) for name in fields),
                        "broke off" if row.dev is None else _written(row.dev, self._digits),
                        "chosen" * row.chosen,
                    ]
                    for row in self.grid
                ],
            )
        lines += ["", "## Data", "", *data_table(self.data)]
        lines += ["", "## Settings", "", *settings_table(self.all_settings)]
        return "\n".join(lines) + "\n"


def data_table(data: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table of the files: how many examples each gave, and how many rows were left out."""
    return markdown_table(
        ["", "examples", "left out", "cut to length", "file"],
        [
            [part, f"{file['examples']:,}", f"{file['skipped']:,}", f"{file['cut']:,}", file["name"]]
            for part, file in data.items()
        ],
    )


def settings_table(settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of all settings."""
    return markdown_table(["setting", "value"], [[name, str(value)] for name, value in settings.items()])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (columns, *rows)]
    return [
        f"| {' | '.join(cells[0])} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in cells[1:]),
    ]


def _written(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _of(row: SeedRow, part: str) -> Metrics | None:
    return row.dev if part == "dev" else row.test


def _spread(measured: Sequence[Metrics], best: Metrics) -> dict[str, Spread]:
    spreads = {}
    for name in measured[0]:
        values = [metrics[name] for metrics in measured]
        mean = math.fsum(values) / len(values)
        squares = math.fsum((value - mean) ** 2 for value in values)
        sd = math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None
        spreads[name] = Spread(mean, sd, best[name])
    return spreads


_PIPELINES: dict[HeadKind, str] = {"sequence": "text-classification", "token": "token-classification"}
_TAGS: dict[HeadKind, str] = {
    "sequence": "text-classification",
    "token": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}
_TITLES = {
    "classification": "puts a text, or a pair of texts, into one of its classes",
    "regression": "gives a text, or a pair of texts, a number",
    "multi_label": "says which of its classes hold for a text",
    "tagging": "gives each word of a sentence a tag",
    "question_answering": "answers a question with a part of a text",
    "multiple_choice": "chooses one of several options",
}
_EXAMPLES: Mapping[HeadKind, str] = {
    "sequence": '"A text."',
    "token": '"A sentence."',
    "span": 'questions.jsonl   # {"question": ..., "context": ...} a line',
    "choice": 'questions.jsonl   # {"article": ..., "questions": ..., "options": ...} a line',
}
_LABELS_SHOWN = 30


def write_model_card(folder: Path, model: FineTunedModel, results: Results, read_as: ReadAs) -> None:
    """Write README.md into a model's folder.

    Args:
        folder: The folder.
        model: What lies there.
        results: What was measured.
        read_as: How the training file was read.

    Raises:
        DeviceError: If it cannot be written.
    """
    write_text(folder / "README.md", model_card(folder.name, model, results, read_as))


def model_card(name: str, model: FineTunedModel, results: Results, read_as: ReadAs) -> str:
    """Return the card's text."""
    task, best = model.task, results.best
    row = family_named(model.family).tasks[task.head]
    config = model.encoder.config
    benchmark = BENCHMARKS.get(results.task)
    lines = [
        "---",
        *([] if benchmark is None else [f"language: {benchmark.language}"]),
        "library_name: transformers",
        f"pipeline_tag: {_TAGS[task.head]}",
        "tags:",
        "- maskwright",
        f"- {results.task}",
        "---",
        "",
        f"# {name}",
        "",
        f"This model {_TITLES[task.kind]}. It is {_made_of(results)}: a {row.architecture} of {config.num_layers} "
        f"layers and width {config.hidden_size} that reads up to {model.max_length} tokens.",
    ]
    if task.labels:
        more = f" and {len(task.labels) - _LABELS_SHOWN} more" if len(task.labels) > _LABELS_SHOWN else ""
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in task.labels[:_LABELS_SHOWN]) + more + "."]
    columns, body = results.table()
    lines += [
        "",
        "## Scores",
        "",
        f"These weights are seed {best.seed}'s after epoch {best.best_epoch:g}, chosen by {results.main_metric} on "
        "the development examples (dev); the scores there are therefore a little too good. Nothing was chosen on the "
        "test examples.",
        "",
        *markdown_table(columns, body),
        *(f"\n{note}" for note in results.notes),
        "",
        "## Data",
        "",
        *data_table(results.data),
        "",
        "## Settings",
        "",
        *settings_table(results.all_settings),
        "",
        "## Use",
        "",
        "```",
        f"maskwright predict {name} {_pairs_file(results, read_as) if results.pairs else _EXAMPLES[task.head]}",
        "```",
        "",
        "```python",
        *_with_transformers(name, task.head, row.architecture, results.pairs),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _made_of(results: Results) -> str:
    if results.from_scratch:
        return f"of the shape and the tokenizer of {results.model}, trained for {results.task} from scratch"
    return f"{results.model}, fine-tuned for {results.task}"


def _pairs_file(results: Results, read_as: ReadAs) -> str:
    """Name a file written as the training file, and its columns as they are called there."""
    suffix = Path(str(results.data["train"]["name"]).removesuffix(".gz").removesuffix(".zst")).suffix
    first, second = (as_names(read_as.get(role, ()))[:1] for role in ("text", "text2"))
    if not first or not second:
        return f"pairs{suffix}   # with the columns of the files that it learnt from"
    if first[0].isdecimal():
        return f"pairs{suffix}   # the texts in columns {first[0]} and {second[0]}, and no line of names"
    return f"pairs{suffix}   # with the columns {first[0]!r} and {second[0]!r}"


def _with_transformers(name: str, head: HeadKind, architecture: str, pairs: bool) -> list[str]:
    if head in _PIPELINES:
        given = '{"text": "A text.", "text_pair": "Another text."}' if pairs else '"A text."'
        return [
            "from transformers import pipeline",
            "",
            f'pipeline("{_PIPELINES[head]}", model="{name}")({given})',
        ]
    return [
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        f'model = {architecture}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
    ]
