"""Kinds of tasks, and the task of a name, of training examples, or of a model folder.

To add a kind: docs/architecture.md, "How do I add a task?".
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never, get_args

from maskwright.checkpoints.task_entries import ProblemType, TaskEntries, unnamed_labels
from maskwright.core.errors import ConversionError, DataError, RecipeError, suggestion, unknown_name
from maskwright.core.spec import validate
from maskwright.core.storage.files import read_if_exists, read_object
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.published.benchmarks import BENCHMARKS, Benchmark, benchmark
from maskwright.finetuning.readers.options import Kind
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering
from maskwright.finetuning.tasks.reranking import Reranking
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.finetuning.tasks.texts import Classification, MultiLabel, Regression

KINDS: Mapping[str, type[Task]] = {
    "classification": Classification,
    "regression": Regression,
    "multi_label": MultiLabel,
    "reranking": Reranking,
    "tagging": Tagging,
    "question_answering": QuestionAnswering,
    "multiple_choice": MultipleChoice,
}
"""Task classes by their names in saved files."""


_OTHER_NAMES: Mapping[str, str] = {
    "ner": "tagging",
    "pos": "tagging",
    "token-classification": "tagging",
    "text-classification": "classification",
    "sequence-classification": "classification",
    "sentiment": "classification",
    "nli": "classification",
    "qa": "question-answering",
    "similarity": "regression",
    "cross-encoder": "reranking",
    "ranking": "reranking",
}
"""Kinds of tasks by their names in other libraries."""


def task_from_json(data: Mapping[str, Any]) -> Task:
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise unknown_name(DataError, "kind of task", str(kind), KINDS)
    return validate(KINDS[kind], dict(data), f"task {kind!r}")


def task_named(name: str) -> tuple[Kind, Benchmark | None]:
    """Return the kind of task, and the benchmark, if it is one, that is called so."""
    for kind in get_args(Kind):
        if name.replace("-", "_").lower() == kind:
            return kind, None
    row = benchmark(name)
    if row is None:
        kinds = [kind.replace("_", "-") for kind in get_args(Kind)]
        usual = _OTHER_NAMES.get(name.replace("_", "-").lower(), name)
        raise RecipeError(
            f"unknown task {name!r}",
            allowed=f"a kind of task ({', '.join(kinds)}), or a benchmark ({', '.join(BENCHMARKS)})",
            hint=suggestion(usual, sorted([*BENCHMARKS, *kinds])),
        )
    return row.kind, row


def make_task(kind: Kind, row: Benchmark | None, examples: Sequence[Any], overrides: Mapping[str, Any]) -> Task:
    """Make the task of a benchmark or of a kind, with the labels of the training examples unless they are given.

    `overrides` are the fields that the user set; `row` is None for the user's own data.
    """
    if "null_threshold" in overrides:
        raise DataError(
            "the task's null_threshold cannot be set: it is chosen on the development examples",
            hint="Leave `--set task.null_threshold` out; answers and their scores are in the predictions.",
        )
    task_class = KINDS[kind]
    fields = dict(overrides)
    if row is not None:
        of_row = {**row.task_fields, "metrics": row.metrics, **({"labels": row.labels} if row.labels else {})}
        fields = {name: value for name, value in of_row.items() if name in task_class.model_fields} | fields
    derived = task_class.infer_fields(examples) if kind == "tagging" or "labels" not in fields else {}
    return validate(task_class, {**derived, **fields}, f"task {kind!r}")


TASK_FILE = "task.json"

_PROBLEM_TYPES: Mapping[str, ProblemType] = {
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
"""Hugging Face's names of the kinds of tasks whose head scores whole sequences."""

_NUMBERED = re.compile(r"(LABEL_)?[-+.\d]+")
"""Label names without a meaning."""


def entries_of(task: Task, rate: float) -> TaskEntries:
    """Return the entries of config.json for a task; `rate` is the dropout before the head's last layer."""
    named = task.head in ("sequence", "token")
    return TaskEntries(
        head=task.head,
        labels=(task.labels or unnamed_labels(task.num_outputs)) if named else (),
        problem_type=_PROBLEM_TYPES.get(task.kind),
        dropout=rate,
    )


def same_labels(entries: TaskEntries, task: Task) -> bool:
    """Return whether a folder's head and a task have the same labels, with meaningful names."""
    if entries.head != task.head:
        return False
    if task.kind == "reranking":  # Every class with one score ranks pairs: CrossEncoders name no labels.
        return entries.num_outputs == 1
    wanted = entries_of(task, 0.0)
    # "0" and "1" of one data set are not those of another.
    meaningful = not all(_NUMBERED.fullmatch(label) for label in wanted.labels) or not wanted.labels
    return meaningful and wanted.labels == entries.labels and entries.problem_type in (None, wanted.problem_type)


def read_task(path: Path, entries: TaskEntries) -> Task:
    """Read a task file; `entries` are those of config.json beside it."""
    task = task_from_json(read_object(path))
    if entries.head != task.head or (task.labels and task.labels != entries.labels):
        raise ConversionError(
            f"{path} describes a task with {_described(task.head, task.labels)}, config.json beside it of one with "
            f"{_described(entries.head, entries.labels)}",
            hint=f"Correct one of them, or remove {path.name} to go by config.json",
        )
    return task


def infer_task(entries: TaskEntries, folder: Path) -> Task:
    """Return the task that a transformers class and its labels imply; `folder` is for messages."""
    if entries.head == "token":
        each = [TaggedExample(key=tag, words=("",), tags=(tag,)) for tag in entries.labels]
        return make_task("tagging", None, each, {"labels": entries.labels})
    if entries.head == "span":
        return QuestionAnswering()
    if entries.head == "choice":
        return MultipleChoice()
    if entries.head != "sequence":
        assert_never(entries.head)
    problem = entries.problem_type or ("regression" if entries.num_outputs == 1 else "single_label_classification")
    if problem == "regression":
        if entries.num_outputs != 1:
            raise ConversionError(
                f"{folder} predicts {entries.num_outputs} numbers at once", allowed="a regression of one number"
            )
        return Reranking() if _has_sigmoid(folder) else Regression()
    if problem == "multi_label_classification":
        return MultiLabel(labels=entries.labels)
    return Classification(labels=entries.labels)


def _has_sigmoid(folder: Path) -> bool:
    """Return whether any version's settings of a CrossEncoder of sentence-transformers have a sigmoid."""
    settings, config = (read_if_exists(folder / f"{name}.json") for name in ("config_sentence_transformers", "config"))
    nested = config.get("sentence_transformers")
    activations = (
        settings.get("activation_fn"),
        nested.get("activation_fn") if isinstance(nested, dict) else None,
        config.get("sbert_ce_default_activation_function"),
    )
    return next(filter(None, activations), "") == "torch.nn.modules.activation.Sigmoid"


def _described(head: str, labels: tuple[str, ...]) -> str:
    return f"a head {head!r}" + (f" and the labels {', '.join(labels)}" if labels else "")
