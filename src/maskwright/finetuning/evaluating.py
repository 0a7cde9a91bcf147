"""`maskwright.evaluate`: measure a fine-tuned model on labelled examples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from maskwright.core.errors import DataError, RecipeError
from maskwright.core.files import check_writable
from maskwright.finetuning.benchmarks import SPLITS, Benchmark, Split
from maskwright.finetuning.checks import check_measurable
from maskwright.finetuning.examples import ExampleFile, has_label
from maskwright.finetuning.fine_tuned import FineTunedModel, load
from maskwright.finetuning.labelled import LabelledRequest
from maskwright.finetuning.making_task import task_named
from maskwright.finetuning.predicting import FOR_BENCHMARKS, FOR_FILES, refuse_other_texts
from maskwright.finetuning.readers import Kind, Paths
from maskwright.finetuning.scoring import features_of, machine_to_score, score_units, write_predictions
from maskwright.finetuning.tasks import QuestionAnswering, Task
from maskwright.training.device import Precision, computing_on
from maskwright.training.reporting import OnConsole, Reporter, Silent


def matching_labels(ours: Sequence[str], theirs: Sequence[str]) -> Mapping[str, str]:
    """Map each label of a benchmark to a label of a model.

    Labels match if they are equal up to case and punctuation. If the benchmark's are numbers ("0", "1"), they match the
    model's by position. Generic labels of a model ("LABEL_2") do not match names: models order classes differently.

    Args:
        ours: The benchmark's labels.
        theirs: The model's, in the order of its head's outputs.

    Raises:
        RecipeError: If they cannot be matched.

    Example:
        >>> matching_labels(["0", "1"], ["NEGATIVE", "POSITIVE"])
        {'0': 'NEGATIVE', '1': 'POSITIVE'}
        >>> matching_labels(["entailment", "not_entailment"], ["Not entailment", "Entailment"])
        {'entailment': 'Entailment', 'not_entailment': 'Not entailment'}
    """
    if len(ours) == len(theirs):
        plain = {_plain(label): label for label in theirs}
        if len(plain) == len(theirs) and {_plain(label) for label in ours} == plain.keys():
            return {label: plain[_plain(label)] for label in ours}
        if list(ours) == [str(number) for number in range(len(ours))]:
            return dict(zip(ours, theirs, strict=True))
    first = theirs[0] if theirs else "..."
    raise RecipeError(
        f"the benchmark's labels ({_shown(ours)}) do not match the model's ({_shown(theirs)})",
        todo=f"Map them: `--read label_names=[[{ours[0]}, {first}], ...]`.",
    )


def _plain(label: str) -> str:
    return "".join(character for character in label.casefold() if character.isalnum())


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(labels[:6]) + (", ..." if len(labels) > 6 else "") if labels else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        model: The model, as the user named it.
        task: The benchmark's name, or the kind of task.
        file: The file of the examples.
        examples: Number of examples.
        skipped: Number of skipped rows.
        cut: Number of examples truncated to the model's length.
        precision: "fp32" or "bf16".
        metrics: The task's metrics, the main one first.
    """

    model: str
    task: str
    file: str
    examples: int
    skipped: int
    cut: int
    precision: Precision
    metrics: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def evaluate(
    model: str | Path | FineTunedModel,
    *,
    task: str | None = None,
    data: str | Path | None = None,
    split: str = "dev",
    file: Paths | None = None,
    text: str | None = None,
    text2: str | None = None,
    label: str | None = None,
    read: Sequence[str] = (),
    out: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    reporter: Reporter | None = None,
) -> Evaluation:
    """Evaluate a fine-tuned model.

    Args:
        model: Written by `finetune`, a folder of a transformers class for such a task, or a loaded model.
        task: A benchmark, for its files, columns, metrics and labels (`matching_labels`); None for the model's own
            task, with `file`.
        data: The folder with the benchmark's files.
        split: "train", "dev" or "test".
        file: A labelled file instead.
        text, text2, label: Its columns; the others are as in the training file, or guessed and reported.
        read: Further read options, "quoting=none".
        out: Write the predictions to this `.jsonl` file.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "fp32", "bf16" (autocast; weights and scores stay fp32), or "auto": bf16 on a GPU that supports it.
        reporter: Receives messages; None for standard error.

    Raises:
        MaskwrightError: If model, task and examples do not fit together, or the examples have no labels.

    Example:
        >>> maskwright.evaluate("runs/reviews", file="more_reviews.csv").metrics
        {'accuracy': 0.86}
    """
    if split not in SPLITS:
        raise RecipeError(f"unknown split {split!r}", allowed=", ".join(SPLITS))
    part: Split = next(name for name in SPLITS if name == split)
    if out is not None:
        check_writable(Path(out).expanduser().parent)
    machine = machine_to_score(device, precision)
    loaded = model if isinstance(model, FineTunedModel) else load(model)
    name = "the model" if isinstance(model, FineTunedModel) else str(model)
    found = task_named(task) if task is not None else cast(Kind, loaded.task.kind)
    kind = found.kind if isinstance(found, Benchmark) else found
    if kind != loaded.task.kind:
        raise RecipeError(
            f"{name} was fine-tuned for {loaded.task.kind}, and {task!r} is {kind}",
            todo="Choose a benchmark of its kind, or leave --task out.",
        )
    request = LabelledRequest.of(
        task=task or kind,
        data=data,
        files={} if file is None else {part: file},
        columns={"text": text, "text2": text2, "label": label},
        read=read,
    )
    with reporter or OnConsole() as talk:
        for note in () if loaded is model else loaded.notes:
            talk.say("model", note)
        trained = loaded.read_as if request.benchmark is None else {}
        if request.benchmark is not None and part == "test":
            _refuse_unlabelled(request)
        examples = request.read(part, talk, needed=True, called="file" if file else "", trained=trained)
        if examples is None:
            raise DataError(f"{request.data} holds no {part} examples", todo="Name the file, `--file FILE`.")
        refuse_other_texts(
            examples.examples, loaded.read_as, examples.name, FOR_FILES if request.benchmark is None else FOR_BENCHMARKS
        )
        measured = loaded.task
        if (row := request.benchmark) is not None:
            names = matching_labels(row.labels, loaded.task.labels) if row.labels else {}
            if changed := [f"{ours} is {theirs}" for ours, theirs in names.items() if ours != theirs]:
                talk.say("labels", f"{', '.join(changed)} (the benchmark's and the model's)")
            examples = _renamed(examples, names)
            measured = _measured_as(loaded.task, row, names)
        check_measurable(examples.examples, measured, examples.name)
        features = features_of(loaded.to(machine.device), examples.examples, training=False)
        with computing_on(machine):
            scores = score_units(loaded, features, talk.stage, autocast=machine.autocast)
        predictions = measured.predictions(scores, features, examples.examples, loaded.tokenizer)
        if out is not None:
            write_predictions(Path(out).expanduser(), predictions)
    return Evaluation(
        model=name,
        task=found.name if isinstance(found, Benchmark) else kind,
        file=examples.name,
        examples=len(examples.examples),
        skipped=len(examples.skipped),
        cut=features.num_cut,
        precision=machine.precision,
        metrics=measured.measure(predictions, examples.examples),
    )


def _refuse_unlabelled(request: LabelledRequest) -> None:
    """Raise a clear error if the labels of a benchmark's test examples were not published."""
    examples = request.read("test", Silent(), needed=False)
    if examples is not None and not any(map(has_label, examples.examples)):
        raise DataError(
            f"{examples.name} has no labels: those of this part were not published",
            todo="Evaluate on `--split dev`, or predict these examples with `maskwright predict`.",
        )


def _measured_as(task: Task[Any], row: Benchmark, names: Mapping[str, str]) -> Task[Any]:
    """Return a model's task with a benchmark's metrics; `names`: the model's label for each of the benchmark's."""
    if isinstance(task, QuestionAnswering):
        metric = row.task_fields.get("metric", task.metric)
        # Only SQuAD 2.0 has unanswerable questions.
        threshold = task.null_threshold if metric == "squad_v2" else 0.0
        return replace(task, metric=metric, null_threshold=threshold)
    changes: dict[str, Any] = {"metrics": row.metrics}
    if "positive" in {field.name for field in fields(cast(Any, task))}:
        changes["positive"] = names[row.labels[1]] if len(row.labels) == 2 else None
    changed: Task[Any] = replace(cast(Any, task), **changes)
    return changed


def _renamed(file: ExampleFile[Any], names: Mapping[str, str]) -> ExampleFile[Any]:
    if all(ours == theirs for ours, theirs in names.items()):
        return file
    examples = tuple(replace(example, label=names.get(example.label, example.label)) for example in file.examples)
    return replace(file, examples=examples)
