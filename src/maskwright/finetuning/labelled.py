"""What a fine-tuning learns from: training, development and test examples of one task, read and counted aloud."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.spec import fingerprint
from maskwright.finetuning.benchmarks import SPLITS, Benchmark, Split
from maskwright.finetuning.examples import ExampleFile, has_label
from maskwright.finetuning.holding_out import hold_out
from maskwright.finetuning.labels import check_measurable, unlabelled
from maskwright.finetuning.making_task import make_task, task_named
from maskwright.finetuning.readers import Kind, Paths, ReadAs, ReadOptions, read_examples, to_keep, with_defaults
from maskwright.finetuning.readers.options import with_overrides
from maskwright.finetuning.reading import benchmark_read_as, read_for_model
from maskwright.finetuning.sound_parts import doubts
from maskwright.finetuning.tasks import Task
from maskwright.finetuning.telling import tell
from maskwright.training.reporting import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Training, development or test examples.

    Attributes:
        name: The file, or what else they are.
        examples: The examples.
        skipped: Rows that were left out.
    """

    name: str
    examples: tuple[Any, ...]
    skipped: int

    @property
    def fingerprint(self) -> str:
        """Identifies the examples, wherever they lie."""
        return fingerprint([repr(example) for example in self.examples])


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A task and its examples.

    Attributes:
        benchmark: None for the user's own data.
        task: The task, with the training examples' labels.
        train, dev, test: Examples; `test` is None where there are none.
        read_as: How the training file was read, or all files of the benchmark, for files that the model meets later.
        notes: What the reader of results must know.
    """

    benchmark: Benchmark | None
    task: Task[Any]
    train: Part
    dev: Part
    test: Part | None
    read_as: ReadAs
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The benchmark's name, or the kind of task."""
        return self.task.kind if self.benchmark is None else self.benchmark.name

    @property
    def parts(self) -> Mapping[str, Part]:
        """All parts by name."""
        found = {"train": self.train, "dev": self.dev}
        return found if self.test is None else {**found, "test": self.test}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRequest:
    """Which files of which task.

    Attributes:
        kind: The kind of task.
        benchmark: The benchmark; None for the user's own data.
        data: The folder of the benchmark's files.
        files: Files by part ("train", "dev", "test"), instead of the benchmark's.
        options: How to read them.
    """

    kind: Kind
    benchmark: Benchmark | None
    data: Path | None
    files: Mapping[Split, Paths]
    options: ReadOptions

    @classmethod
    def of(
        cls,
        *,
        task: str,
        data: str | Path | None = None,
        files: Mapping[Split, Paths | None],
        columns: Mapping[str, str | None],
        read: Sequence[str] = (),
    ) -> "LabelledRequest":
        """Make a request of what the user said.

        Args:
            task: A benchmark's name, or a kind of task; "-" and "_" are the same.
            data: The folder of the benchmark's files.
            files: Files by part.
            columns: Columns by role ("text", "text2", "label").
            read: "field=value" for further fields of `ReadOptions`.

        Raises:
            RecipeError: If the task or a field is unknown, or no files were given.
        """
        found = task_named(task)
        row = found if isinstance(found, Benchmark) else None
        given = {part: paths for part, paths in files.items() if paths}
        if data is None and not given:
            own = "--train FILE" if "train" in files else "--file FILE"
            todo = "Name the folder of its files, `--data DIR`" if row else f"Name your files, e.g. `{own}`"
            raise RecipeError(f"no data was given for the task {task!r}", todo=f"{todo}.")
        if data is not None and row is None:
            raise RecipeError(
                f"--data names a benchmark's folder, and {task!r} is a kind of task",
                todo="Name your files, e.g. `--train FILE --dev FILE`.",
            )
        folder = None if data is None else Path(data).expanduser()
        options = with_overrides(ReadOptions() if row is None else row.options, columns, read)
        if row is not None and row.labels:
            renamed = dict(options.label_names)
            row = replace(row, labels=tuple(renamed.get(label, label) for label in row.labels))
            options = replace(options, known_labels=options.known_labels or row.labels)
        return cls(
            kind=found.kind if isinstance(found, Benchmark) else found,
            benchmark=row,
            data=folder,
            files=given,
            options=options,
        )

    def paths(self, part: Split) -> Paths | None:
        """Return the files of a part: those that were named, else the benchmark's own; None where there are none."""
        paths = self.files.get(part)
        if paths is None and self.data is not None and self.benchmark is not None:
            return self.benchmark.find(self.data).get(part)
        return paths

    def read(
        self,
        part: Split,
        talk: Reporter,
        *,
        needed: bool | None = None,
        called: str = "",
        train_read_as: ReadAs | None = None,
        trained: ReadAs | None = None,
    ) -> ExampleFile[Any] | None:
        """Read a part, and tell how many examples it has, what was left out, and what was guessed.

        Args:
            part: "train", "dev" or "test".
            talk: Where to tell.
            needed: Whether rows without label are left out; None: but for test examples, which often have none.
            called: What to call it; "" for the part's name.
            train_read_as: How the training part was read; this one must be so too.
            trained: How the training file of a model was read; this one is read so too, if it can be.

        Returns:
            The examples; None where there is no such file.

        Raises:
            DataError: If a file cannot be read.
        """
        paths = self.paths(part)
        if not paths:
            return None
        wanted = part != "test" if needed is None else needed
        options = replace(self.options, labels="needed" if wanted else "if_there")
        if train_read_as:
            file = _read_as_train(paths, self.kind, options, train_read_as)
        else:
            file = read_for_model(paths, self.kind, options, trained or {})
        tell(called or part, file, talk)
        return file


def read_labelled(request: LabelledRequest, task_fields: Mapping[str, Any], talk: Reporter) -> Labelled:
    """Read all parts, and make the task of the training examples' labels.

    Args:
        request: Which files of which task.
        task_fields: Fields of the task that the user set.
        talk: Where to tell what was read.

    Raises:
        DataError: If a file cannot be read, there is no training file, or the labels do not fit.
    """
    row = request.benchmark
    train = request.read("train", talk)
    if train is None:
        where = f"in {request.data} for {row.title}" if row and request.data else ""
        raise DataError(f"there are no training examples {where}".strip(), todo="Name their file, `--train FILE`.")
    # What the training file showed holds for the others: guessed anew, they might be read as something else.
    read_as = to_keep(request.options, train.read_as)
    dev, test = (request.read(part, talk, train_read_as=read_as) for part in SPLITS[1:])
    task = make_task(request.kind, row, train.examples, task_fields)
    notes = []
    train_part = _part(train)
    if dev is None:
        kept, held = hold_out(train.examples, train.name)
        note = (
            f"There is no development file: {len(held):,} of the {len(train.examples):,} training examples are held "
            f"out for it ({len(held) / len(train.examples):.0%}, the same ones for every seed)."
        )
        notes.append(note)
        talk.say("dev", note)
        dev_part = Part(name=f"held out of {train.name}", examples=tuple(held), skipped=0)
        train_part = replace(train_part, examples=tuple(kept))
    else:
        dev_part = _part(dev)
    check_measurable(dev_part.examples, task, dev_part.name)
    test_part = None if test is None else _part(test)
    if test_part is not None and unlabelled(test_part.examples):
        notes.append("The test examples have no labels: their predictions are in test_predictions.jsonl of each run.")
    elif test_part is not None:
        test_part, more = _with_labels(test_part)
        notes += more
        for note in more:
            talk.say("test", note)
        check_measurable(test_part.examples, task, test_part.name)
    read = {"train": train_part, "dev": dev_part, **({} if test_part is None else {"test": test_part})}
    for part, doubt in doubts({name: its.examples for name, its in read.items()}):
        notes.append(f"{part}: {doubt}.")
        talk.say(part, doubt)
    return Labelled(
        benchmark=row,
        task=task,
        train=train_part,
        dev=dev_part,
        test=test_part,
        read_as=read_as if row is None else _of_all_files(row, request, read_as),
        notes=tuple(notes),
    )


def _of_all_files(row: Benchmark, request: LabelledRequest, read_as: ReadAs) -> ReadAs:
    """Return how all files of a benchmark are read: as the row says, and beyond it as the training file showed."""
    train = request.paths("train")
    assert train is not None
    return benchmark_read_as(row.name, request.kind, train, with_defaults(request.options, read_as))


def _read_as_train(paths: Paths, kind: Kind, options: ReadOptions, train_read_as: ReadAs) -> ExampleFile[Any]:
    """Read a part as the training part was; an error says how that is."""
    same = with_defaults(options, train_read_as)
    try:
        return read_examples(paths, kind, same)
    except DataError as error:
        if same == options:
            raise
        told = ", ".join(
            f"{name}={value}" for name, value in train_read_as.items() if getattr(same, name) != getattr(options, name)
        )
        raise DataError(
            f"{error.problem} (it is read as the training file was: {told})", allowed=error.allowed, todo=error.todo
        ) from error


def _with_labels(part: Part) -> tuple[Part, list[str]]:
    """Leave out the examples without label, and say how many these are."""
    kept = tuple(example for example in part.examples if has_label(example))
    lacking = len(part.examples) - len(kept)
    if not lacking:
        return part, []
    note = f"{lacking:,} of the {len(part.examples):,} test examples have no label and are left out."
    return replace(part, examples=kept, skipped=part.skipped + lacking), [note]


def _part(file: ExampleFile[Any]) -> Part:
    return Part(name=file.name, examples=file.examples, skipped=len(file.skipped))
