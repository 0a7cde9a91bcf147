"""Kinds of tasks, and the task of a name, of training examples, or of a model folder.

To add a kind: one module, one entry in `TaskChoice` and one in `KINDS`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from maskwright.core.errors import ConversionError, DataError, RecipeError, unknown_name
from maskwright.core.files import read_json
from maskwright.finetuning.benchmarks import BENCHMARKS, Benchmark, benchmark
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.readers import Kind, as_name, name_list
from maskwright.finetuning.readers.options import in_tuples
from maskwright.finetuning.tasks.base import Prediction, Scores, Task, from_json
from maskwright.finetuning.tasks.classification import Classification, MultiLabel, Regression
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering, tune_null_threshold
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.huggingface.task_entries import ProblemType, TaskEntries, unnamed_labels

__all__ = [
    "KINDS",
    "TASK_FILE",
    "Classification",
    "MultiLabel",
    "MultipleChoice",
    "Prediction",
    "QuestionAnswering",
    "Regression",
    "Scores",
    "Tagging",
    "Task",
    "TaskChoice",
    "entries_of",
    "guessed_task",
    "make_task",
    "means_the_same",
    "read_task",
    "task_from_json",
    "task_named",
    "tune_null_threshold",
]

TaskChoice = Classification | Regression | MultiLabel | Tagging | QuestionAnswering | MultipleChoice

KINDS: Mapping[str, type[TaskChoice]] = {
    task.kind: task for task in (Classification, Regression, MultiLabel, Tagging, QuestionAnswering, MultipleChoice)
}
"""Task classes by their names in saved files."""


def task_from_json(data: Mapping[str, Any]) -> TaskChoice:
    """Make a task from the data of `Task.to_json`.

    Raises:
        DataError: If the kind or a field is unknown, or a value is not allowed.
    """
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        problem, allowed, todo = unknown_name("kind of task", str(kind), KINDS)
        raise DataError(problem, allowed=allowed, todo=todo)
    task: TaskChoice = from_json(KINDS[kind], data)
    return task


_OF_EXAMPLES = ("classification", "multi_label", "tagging", "question_answering")
"""Kinds of tasks that look at the training examples: for their labels, or for whether all questions have answers."""


def task_named(name: str) -> Benchmark | Kind:
    """Return the benchmark or the kind of task that is called so.

    Raises:
        RecipeError: If there is neither; the nearest name of both is suggested.
    """
    for kind in get_args(Kind):
        if name.replace("-", "_").lower() == kind:
            found: Kind = kind
            return found
    try:
        return benchmark(name)
    except RecipeError:
        kinds = [kind.replace("_", "-") for kind in get_args(Kind)]
        problem, _, todo = unknown_name("task", name, [*BENCHMARKS, *kinds])
        allowed = f"a kind of task ({', '.join(kinds)}), or a benchmark ({', '.join(BENCHMARKS)})"
        raise RecipeError(problem, allowed=allowed, todo=todo) from None


def make_task(kind: Kind, row: Benchmark | None, examples: Sequence[Any], own: Mapping[str, Any]) -> Task[Any]:
    """Make the task of a benchmark or of a kind, with the labels of the training examples unless they are given.

    `own` are the fields that the user set; `row` is None for the user's own data.

    Raises:
        DataError: If a field is unknown or the labels make no task.
    """
    task_class: Any = KINDS[kind]
    known = {field.name for field in fields(task_class) if field.init}
    of_row: dict[str, Any] = {}
    if row is not None:
        of_row = {**row.task_fields, "metrics": row.metrics, **({"labels": row.labels} if row.labels else {})}
    chosen = {**{name: value for name, value in of_row.items() if name in known}, **own}
    for name in chosen:
        if name not in known:
            problem, allowed, todo = unknown_name(f"field of the task {kind!r}", name, known)
            raise DataError(problem, allowed=allowed, todo=todo)
    types = {field.name: field.type for field in fields(task_class)}
    # Of a text with commas, a list of names; of 0 and true, names of labels.
    made_of: dict[Any, Callable[[Any], Any]] = {tuple[str, ...]: name_list, str: as_name, str | None: as_name}
    chosen = {name: made_of.get(types[name], in_tuples)(value) for name, value in chosen.items()}
    if "null_threshold" in own:
        raise DataError(
            "the task's null_threshold cannot be set: it is chosen on the development examples",
            todo="Leave `--set task.null_threshold` out; answers and their scores are in the predictions.",
        )
    try:
        task: Task[Any] = (
            task_class.for_examples(examples, **chosen)
            if kind == "tagging" or (kind in _OF_EXAMPLES and "labels" not in chosen)
            else task_class(**chosen)
        )
    except TypeError as error:
        raise DataError(f"the task {kind!r} cannot be made: {error}") from error
    return task


TASK_FILE = "task.json"

_PROBLEM_TYPES: Mapping[str, ProblemType] = {
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
"""Hugging Face's names of the kinds of tasks whose head scores whole sequences."""

_NUMBERED = re.compile(r"(LABEL_)?[-+.\d]+")
"""Label names without a meaning."""


def entries_of(task: Task[Any], rate: float) -> TaskEntries:
    """Return the entries of config.json for a task; `rate` is the dropout before the head's last layer."""
    named = task.head in ("sequence", "token")
    return TaskEntries(
        kind=task.head,
        labels=(task.labels or unnamed_labels(task.num_outputs)) if named else (),
        problem_type=_PROBLEM_TYPES.get(task.kind),
        dropout=rate,
    )


def means_the_same(there: TaskEntries, task: Task[Any]) -> bool:
    """Whether a folder's head and a task have the same labels, with meaningful names."""
    if there.kind != task.head:
        return False
    here = entries_of(task, 0.0)
    # "0" and "1" of one data set are not those of another.
    meaningful = not all(_NUMBERED.fullmatch(label) for label in here.labels) or not here.labels
    return meaningful and here.labels == there.labels and there.problem_type in (None, here.problem_type)


def read_task(path: Path, entries: TaskEntries) -> Task[Any]:
    """Read a task file; `entries` are those of config.json beside it.

    Raises:
        ConversionError: If it is not readable, or the two contradict each other.
        DataError: If it does not describe a task.
    """
    try:
        data = read_json(path)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConversionError(f"{path} is not readable JSON: {error}", todo="Fetch or write it again") from error
    if not isinstance(data, dict):
        raise ConversionError(f"{path} holds a {type(data).__name__}", allowed="a JSON object")
    task = task_from_json(data)
    if task.head != entries.kind or (task.labels and task.labels != entries.labels):
        raise ConversionError(
            f"{path} describes a task with {_described(task.head, task.labels)}, config.json beside it of one with "
            f"{_described(entries.kind, entries.labels)}",
            todo=f"Correct one of them, or remove {path.name} to go by config.json",
        )
    return task


def guessed_task(entries: TaskEntries, folder: Path) -> Task[Any]:
    """Return the task that a transformers class and its labels imply; `folder` is for messages.

    Raises:
        ConversionError: If there is no such task here.
    """
    if entries.kind == "token":
        each = [TaggedExample(key=tag, words=("",), tags=(tag,)) for tag in entries.labels]
        return Tagging.for_examples(each, labels=entries.labels)
    if entries.kind != "sequence":
        return task_from_json({"kind": {"span": "question_answering", "choice": "multiple_choice"}[entries.kind]})
    problem = entries.problem_type or ("regression" if entries.num_outputs == 1 else "single_label_classification")
    if problem == "regression" and entries.num_outputs != 1:
        raise ConversionError(
            f"{folder} predicts {entries.num_outputs} numbers at once", allowed="a regression of one number"
        )
    kind = next(ours for ours, theirs in _PROBLEM_TYPES.items() if theirs == problem)
    return task_from_json({"kind": kind, **({} if kind == "regression" else {"labels": list(entries.labels)})})


def _described(head: str, labels: tuple[str, ...]) -> str:
    return f"a head {head!r}" + (f" and the labels {', '.join(labels)}" if labels else "")
