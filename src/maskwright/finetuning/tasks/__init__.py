"""Kinds of tasks. To add one: one module, one entry in `TaskChoice` and one in `KINDS`."""

from collections.abc import Mapping
from typing import Any

from maskwright.core.errors import DataError, unknown_name
from maskwright.finetuning.tasks.base import Prediction, Scores, Task, from_json
from maskwright.finetuning.tasks.classification import Classification, MultiLabel, Regression
from maskwright.finetuning.tasks.multiple_choice import MultipleChoice
from maskwright.finetuning.tasks.question_answering import QuestionAnswering, tune_null_threshold
from maskwright.finetuning.tasks.tagging import Tagging

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


__all__ = [
    "KINDS",
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
    "task_from_json",
    "tune_null_threshold",
]
