"""A model's task as its folder tells it: by a file of our own, or by Hugging Face's class and the labels beside it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.core.errors import ConversionError
from maskwright.core.files import read_json
from maskwright.finetuning.examples import TaggedExample
from maskwright.finetuning.tasks import task_from_json
from maskwright.finetuning.tasks.base import Task
from maskwright.finetuning.tasks.tagging import Tagging
from maskwright.huggingface.task_entries import ProblemType, TaskEntries, unnamed_labels

TASK_FILE = "task.json"

_PROBLEM_TYPES: Mapping[str, ProblemType] = {
    "classification": "single_label_classification",
    "regression": "regression",
    "multi_label": "multi_label_classification",
}
"""What Hugging Face calls the kinds of tasks whose head scores whole sequences."""

_NUMBERED = re.compile(r"(LABEL_)?[-+.\d]+")
"""Names of labels that do not tell what they mean."""


def entries_of(task: Task[Any], rate: float) -> TaskEntries:
    """Return what config.json tells of a task.

    Args:
        task: The task.
        rate: Share dropped before the head's last layer.
    """
    named = task.head in ("sequence", "token")
    return TaskEntries(
        kind=task.head,
        labels=(task.labels or unnamed_labels(task.num_outputs)) if named else (),
        problem_type=_PROBLEM_TYPES.get(task.kind),
        dropout=rate,
    )


def means_the_same(there: TaskEntries, task: Task[Any]) -> bool:
    """Whether a folder's head means what a task's does: of the same labels, by names that tell."""
    if there.kind != task.head:
        return False
    here = entries_of(task, 0.0)
    # "0" and "1" of one data set are not those of another.
    tells = not all(_NUMBERED.fullmatch(label) for label in here.labels) or not here.labels
    return tells and here.labels == there.labels and there.problem_type in (None, here.problem_type)


def read_task(path: Path, entries: TaskEntries) -> Task[Any]:
    """Read the file of a task.

    Args:
        path: The file.
        entries: What config.json beside it tells.

    Raises:
        ConversionError: If it is not readable, or the two contradict each other.
        DataError: If it holds no task.
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
            f"{path} tells of a task with {_told(task.head, task.labels)}, config.json beside it of one with "
            f"{_told(entries.kind, entries.labels)}",
            todo=f"Correct one of them, or remove {path.name} to go by config.json",
        )
    return task


def guessed_task(entries: TaskEntries, folder: Path) -> Task[Any]:
    """Tell a task by a transformers class and its labels, as transformers itself does.

    Args:
        entries: What config.json tells.
        folder: Where it stands, for messages.

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


def _told(head: str, labels: tuple[str, ...]) -> str:
    return f"a head {head!r}" + (f" and the labels {', '.join(labels)}" if labels else "")
