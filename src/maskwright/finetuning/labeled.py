"""The labeled files of a fine-tuning: read, checked, split into parts; how files are read later."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from maskwright.core.errors import DataError, JsonError, RecipeError
from maskwright.core.spec import validate
from maskwright.core.storage.files import read_if_exists, write_json
from maskwright.core.text.amounts import pluralize
from maskwright.data.held_out import document_key, held_out
from maskwright.finetuning.examples import (
    E,
    Example,
    ExampleFile,
    SkippedRow,
    TaggedExample,
    TextExample,
    has_labels,
    summary_of,
)
from maskwright.finetuning.negatives import NegativeMiner
from maskwright.finetuning.published.benchmarks import BENCHMARKS, Benchmark, Split
from maskwright.finetuning.readers import Data, read_examples, sources_of
from maskwright.finetuning.readers.files import format_of
from maskwright.finetuning.readers.options import Kind, ReadAs, ReadOptions, to_keep, with_defaults, with_overrides
from maskwright.finetuning.readers.tables import COLUMNS, Source
from maskwright.finetuning.tasks import make_task, task_named
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.reranking import Reranking
from maskwright.reporting.reporter import Reporter

_HELD_OUT_SHARE = 0.1
_FEWEST_HELD_OUT = 5
"""Examples held out of a small file, unless they are more than a third of it."""
_FEW = 50
"""Size below which a dev or test file is reported as small: each example counts more than 2 %."""
_MEANS = {
    ("classification", "accuracy"),
    ("multi_label", "subset_accuracy"),
    ("multiple_choice", ""),
    ("question_answering", ""),
}
"""Tasks, with their main metric where they have several, whose score is a mean over the examples."""
_LABELS_SHOWN = 12
_DISTINCT_SHARE, _DISTINCT_FROM = 0.9, 20
"""Share of different labels, in so many examples, from which the label column is doubted."""
READING_FILE = "reading.json"
_OF_A_FORMAT = ("quoting", "delimiter", "word_ending")
"""Options that apply only to files of one format: quotes of a TSV file do not apply to a CSV file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledData:
    """A task, with the training examples' labels, and its examples by "train", "dev" and, if there are any, "test".

    `benchmark` is None for the user's own data; `read_as` is how the training file was read, for later files; `notes`
    are what the reader of results must know.
    """

    benchmark: Benchmark | None
    task: Task
    parts: Mapping[str, ExampleFile[Any]]
    read_as: ReadAs
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The benchmark's name, or the kind of task."""
        return self.task.kind if self.benchmark is None else self.benchmark.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledRequest:
    """A task and its data: the files of a benchmark's folder `data`, or `files` and tables by part instead."""

    kind: Kind
    benchmark: Benchmark | None
    data: Path | None
    files: Mapping[Split, tuple[Source, ...]]
    options: ReadOptions

    @classmethod
    def of(
        cls,
        *,
        task: str,
        data: str | Path | None = None,
        files: Mapping[Split, Data | None],
        columns: Mapping[str, str | None],
        read: Sequence[str] = (),
    ) -> "LabeledRequest":
        """Return the request that a call describes; RecipeError if the task or a field is unknown, or no files were
        given.

        `files` are by part, `columns` by role ("text", "text2", "label"), `read` holds "field=value" for `ReadOptions`.
        """
        kind, row = task_named(task)
        if kind == "embedding" and data is not None:
            row = BENCHMARKS["sts-b"]  # the benchmark of scored pairs
        by_part = {part: sources_of(each, part) for part, each in files.items() if each is not None}
        by_part = {part: sources for part, sources in by_part.items() if sources}
        if data is None and not by_part:
            hint = "Name your files, e.g. `--train FILE`"
            if row:
                hint = f"Name the folder of its files ({', '.join(row.usual_files())}), `--data DIR`"
            raise RecipeError(f"no data was given for the task {task!r}", hint=f"{hint}.")
        if data is not None and row is None:
            raise RecipeError(
                f"--data names a benchmark's folder, and {task!r} is a kind of task",
                hint="Name your files, e.g. `--train FILE --dev FILE`.",
            )
        folder = None if data is None else Path(data).expanduser()
        options = with_overrides(ReadOptions() if row is None else row.options, columns, read)
        if row is not None and row.labels:
            renamed = dict(options.label_names)
            row = replace(row, labels=tuple(renamed.get(label, label) for label in row.labels))
            options = options.replace(known_labels=options.known_labels or row.labels)
        return cls(kind=kind, benchmark=row, data=folder, files=by_part, options=options)

    def sources(self, part: Split) -> tuple[Source, ...]:
        """Return the files and tables of a part: those that were named, else the benchmark's."""
        if part not in self.files and self.data is not None and self.benchmark is not None:
            return self.benchmark.find(self.data).get(part, ())
        return self.files.get(part, ())

    @property
    def train_format(self) -> str:
        """The format of the training file; DataError if there is none."""
        if sources := self.sources("train"):
            return format_of(sources[0], self.kind, self.options)
        where = f" in {self.data} for {self.benchmark.title}" if self.benchmark and self.data else ""
        raise DataError(
            f"there are no training examples{where}",
            allowed=" or ".join(self.benchmark.usual_files("train")) if self.benchmark else "",
            hint="Name their file, `--train FILE`.",
        )

    def read(self, part: Split, reporter: Reporter, trained: ReadAs = MappingProxyType({})) -> ExampleFile[Any] | None:
        """Read a part and report on it (`report_file`); None where there is no such file.

        Rows without label are bad, except in test files and for embeddings. `trained` is how the training file was
        read, for the other parts.
        """
        sources = self.sources(part)
        if not sources:
            return None
        may_lack = part == "test" or self.kind in ("embedding", "reranking")
        options = self.options.replace(labels="if_there" if may_lack else "needed")
        file = read_for_model(sources, self.kind, options, trained)
        report_file(part, file, reporter)
        return file


def read_labeled(
    request: LabeledRequest, task_fields: Mapping[str, Any], reporter: Reporter, miner: NegativeMiner | None = None
) -> LabeledData:
    """Read all parts, and make the task from the training examples' labels and the fields that the user set.

    `miner` is for reranking: it adds other documents to parts that hold only relevant ones.
    """
    format = request.train_format
    train = request.read("train", reporter)
    assert train is not None
    read_as = {**to_keep(request.options, train.read_as), "format": format}
    dev, test = (request.read(part, reporter, read_as) for part in ("dev", "test"))
    task = make_task(request.kind, request.benchmark, train.examples, task_fields)
    if request.benchmark is None and task.labels and all(map(str.isdecimal, task.labels)):
        names = ", ".join(f"[{label}, NAME]" for label in task.labels[:_LABELS_SHOWN])
        names += ", ..." * (len(task.labels) > _LABELS_SHOWN)
        reporter.message("labels", f'are numbers; name them for the model\'s users: `--read "label_names=[{names}]"`')
    notes: list[str] = []
    if dev is None:
        train, dev = with_held_out(train, reporter, notes, by_query=request.kind == "reranking")
    if request.kind == "reranking":

        def with_negatives(part: Split, file: ExampleFile[Any]) -> ExampleFile[Any]:
            if has_labels(file.examples):
                return without_unlabeled(file, reporter, notes)
            assert miner is not None
            return miner.add_negatives(part, file)

        train, dev = with_negatives("train", train), with_negatives("dev", dev)
        test = test and with_negatives("test", test)
    parts = {"train": train, "dev": dev}
    check_measurable(train, task, training=True)
    check_measurable(dev, task)
    if test is not None:
        if has_labels(test.examples):
            test = without_unlabeled(test, reporter, notes)
            check_measurable(test, task)
        else:
            notes.append("The test examples have no labels: test_predictions.jsonl of each run has their predictions.")
        parts["test"] = test
    notes += warn_of(parts, reporter, task=task)
    return LabeledData(benchmark=request.benchmark, task=task, parts=parts, read_as=read_as, notes=tuple(notes))


def report_file(part: str, file: ExampleFile[Any], reporter: Reporter) -> None:
    """Report what was read: number of examples, classes, guesses, skipped rows with the most frequent reasons."""
    labels = [example.label for example in file.examples if isinstance(example, TextExample)]
    sets = [(label,) if isinstance(label, str) else label for label in labels if isinstance(label, str | tuple)]
    counts = Counter(label for each in sets for label in each)
    classes = f" ({_frequent(counts)})" if counts else ""
    reporter.message(part, f"{pluralize(len(file.examples), 'example')} from {file.name}{classes}")
    for note in file.notes:
        reporter.message("", note)
    if file.skipped:
        reporter.message("skipped", f"{pluralize(len(file.skipped), 'row')}: {summary_of(file.skipped)}")


def _frequent(counts: Counter[str]) -> str:
    shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(_LABELS_SHOWN))
    return shown + (f" and {len(counts) - _LABELS_SHOWN} more" if len(counts) > _LABELS_SHOWN else "")


def unknown_tags(examples: Sequence[Example], task: Task | None) -> str:
    """Return the warning about tags that the model never predicts, since training had none; empty without such tags.

    They are no error as unknown classes are: entity types that only the test file has are usual.
    """
    tags = (tag for each in examples if isinstance(each, TaggedExample) for tag in each.tags or ())
    unknown = Counter(tag for tag in tags if task and tag not in task.labels)
    listed = f"{_frequent(unknown)}; are they spelled as in the training file?"
    return f"tags that the model lacks and never predicts, by number of words: {listed}" if unknown else ""


def check_measurable(file: ExampleFile[Any], task: Task, *, training: bool = False) -> None:
    """Raise `DataError` naming the first example that cannot be evaluated, or trained on. Called before training."""
    lacking = [example.location for example in file.examples if not example.is_labeled]
    if lacking:
        raise DataError(
            f"{file.name}: {len(lacking)} of {len(file.examples)} examples have no label, the first is {lacking[0]}",
            hint="Development examples need labels: name another file, or omit --dev to hold out a share of "
            "the training examples.",
        )
    try:
        task.check(file.examples)
        if isinstance(task, Reranking):
            task.check_rankings(file.examples, training=training)
    except DataError as error:
        raise DataError(f"{file.name}, {error.problem}", allowed=error.allowed, hint=error.hint) from error


def warn_of(parts: Mapping[str, ExampleFile[Any]], reporter: Reporter, *, task: Task | None = None) -> list[str]:
    """Report the warnings about the examples (`data_warnings`), and return them as notes."""
    notes = []
    for part, warning in data_warnings({name: file.examples for name, file in parts.items()}, task=task):
        reporter.message(part, warning)
        notes.append(f"{part}: {warning}" + "." * (not warning.endswith("?")))
    return notes


def report_truncated(
    parts: Mapping[str, ExampleFile[Any]], counts: Mapping[str, int], limit: str, effect: str, reporter: Reporter
) -> None:
    """Report by part how many examples are longer than the limit ("more than 128 tokens"), if any are."""
    longer = [f"{count:,} of {len(parts[name].examples):,} {name}" for name, count in counts.items() if count]
    if longer:
        reporter.message("truncated", f"{', '.join(longer)} examples have {limit}; {effect}")


def data_warnings(parts: Mapping[str, Sequence[Example]], *, task: Task | None = None) -> Iterator[tuple[str, str]]:
    """Yield (part, warning): inputs also in an earlier part (data leakage), small parts, distinct labels, unknown tags.

    `parts` begin with the training examples. Texts are equal if all characters are (`content` of the examples).
    Examples have no fixed share of a correlation or F1, nor of an unknown score (no `task`). Rerankers are scored by
    query, the first text.
    """
    by_query = isinstance(task, Reranking)
    is_mean = by_query or (task and (task.kind, next(iter(getattr(task, "metrics", ())), ""))) in _MEANS
    contents: dict[str, set[Hashable]] = {}
    for part, examples in parts.items():
        inputs, warnings = [example.content for example in examples], []
        for earlier, known in contents.items():
            if seen := sum(content in known for content in inputs):
                share = f"{seen:,} of {len(inputs):,}" if seen < len(inputs) else f"all {len(inputs):,}"
                warnings.append(f"{share} inputs also in {earlier}")
        contents[part] = set(inputs)
        if part != "train" and has_labels(examples):
            count, named = len(inputs), pluralize(len(inputs), "example")
            if by_query:
                count = len({each.texts[0] for each in examples if isinstance(each, TextExample)})
                named = f"{count:,} quer{'y' if count == 1 else 'ies'}"
            if count < _FEW:
                warnings.append(f"{named}, each {100 / count:.0f} % of the score" if is_mean else f"only {named}")
        classes = [each.label for each in examples if isinstance(each, TextExample) and isinstance(each.label, str)]
        if part == "train" and len(set(classes)) >= max(_DISTINCT_SHARE * len(inputs), _DISTINCT_FROM):
            warnings.append(
                f"{len(set(classes)):,} different labels in {len(inputs):,} examples: is --label the right column?"
            )
        warnings += filter(None, [unknown_tags(examples, task)])
        if warnings:
            yield part, "; ".join(warnings)


def without_unlabeled(file: ExampleFile[Any], reporter: Reporter, notes: list[str]) -> ExampleFile[Any]:
    """Leave out the examples without label of a file in which others have one; a note says so."""
    lacking = tuple(SkippedRow(example.key, "no label") for example in file.examples if not example.is_labeled)
    if len(lacking) in (0, len(file.examples)):
        return file
    notes.append(f"{len(lacking):,} of the {len(file.examples):,} examples of {file.name} have no label, left out.")
    reporter.message("skipped", notes[-1])
    labeled = tuple(example for example in file.examples if example.is_labeled)
    return replace(file, examples=labeled, skipped=(*file.skipped, *lacking))


def with_held_out(
    train: ExampleFile[Any], reporter: Reporter, notes: list[str], *, by_query: bool = False
) -> tuple[ExampleFile[Any], ExampleFile[Any]]:
    """Split a training file into training and development examples (`hold_out`); a note says so."""
    kept, held = hold_out(train.examples, train.name, by_query=by_query)
    notes.append(
        f"There is no development file: {len(held):,} of the {len(train.examples):,} training examples are held out "
        f"for it ({len(held) / len(train.examples):.0%}, the same ones for every seed)."
    )
    reporter.message("dev", notes[-1])
    return replace(train, examples=tuple(kept)), ExampleFile(name=f"held out of {train.name}", examples=tuple(held))


def hold_out(examples: Sequence[E], name: str, *, by_query: bool = False) -> tuple[list[E], list[E]]:
    """Split examples of a file into training and development ones by a hash of the text (`data.held_out`).

    Equal texts, questions about one text, and (`by_query`) pairs with the same first text stay together: no text is in
    both parts.
    """
    texts = [
        example.content[0] if by_query else getattr(example, "context", "") or example.content for example in examples
    ]
    keys = np.array([document_key(repr(text)) for text in texts], dtype=np.uint64)
    _, counts = np.unique(keys, return_counts=True)
    if len(counts) < 2:
        raise DataError(
            f"{name} has {pluralize(len(examples), 'example')} of {pluralize(len(counts), 'text')}: none can be held "
            "out for development",
            hint="Give more examples, or a development file with `--dev FILE`.",
        )
    limit = max(round(_HELD_OUT_SHARE * len(examples)), min(_FEWEST_HELD_OUT, len(examples) // 3))
    # The smallest text is held out even if it has more examples.
    held = held_out(keys, np.ones(len(keys), dtype=np.int64), max(limit, int(counts.min())))
    kept, out = ([examples[number] for number in np.flatnonzero(held == part).tolist()] for part in (False, True))
    return kept, out


def save_read_as(folder: Path, read_as: ReadAs) -> None:
    write_json(folder / READING_FILE, dict(read_as))


def load_read_as(folder: str | Path) -> ReadAs:
    """Return how the training file of a model was read; nothing where the folder does not say."""
    path = Path(folder).expanduser() / READING_FILE
    try:
        options = validate(ReadOptions, read_if_exists(path), str(path))
    except (RecipeError, JsonError) as error:
        raise DataError(error.problem, hint="Remove the file to have it guessed.") from None
    return options.model_dump(exclude_defaults=True)


def read_for_model(data: Data, kind: Kind, options: ReadOptions, trained: ReadAs) -> ExampleFile[Any]:
    """Read examples as a model's training file was read (`trained`), in all that `options` leave open.

    Columns are those of the training file, except where a file has one text per line; delimiter, quoting and word
    ending are those of files of its format. For reranking, columns that the data lack are guessed.
    """
    sources = sources_of(data, "file")
    if not sources:
        raise DataError("no file was given", allowed="one file or more")
    format = format_of(sources[0], kind, options)
    if format == "text" and options.labels == "needed" and trained.get("format") in ("csv", "tsv"):
        # Lines of a text alone have no label, so that it must be the layout of the training file (TREC).
        format = trained["format"]
        options = options.replace(format=format)
    fields = {
        name: value
        for name, value in trained.items()
        if name != "format"
        and not (name in _OF_A_FORMAT and format != trained.get("format", format))
        and not (name in (*COLUMNS, "only") and format == "text")
    }
    filled = with_defaults(options, fields)
    # Files for reranking hold pairs, triplets or labeled pairs.
    same = [name for name in COLUMNS if name in fields and fields[name] == getattr(filled, name)]
    try:
        return read_examples(sources, kind, filled, optional=same if kind == "reranking" else ())
    except DataError as error:
        if filled == options:
            raise
        problem = f"{error.problem} (it is read as the training file was)"
        raise DataError(problem, allowed=error.allowed, hint=error.hint) from error
