"""The task that a user names, with the labels of the training examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from maskwright.core.errors import DataError, RecipeError, unknown_name
from maskwright.finetuning.benchmarks import BENCHMARKS, Benchmark, benchmark
from maskwright.finetuning.readers import Kind, as_name, name_list
from maskwright.finetuning.readers.options import in_tuples
from maskwright.finetuning.tasks import KINDS, Task

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
    """Make the task of a benchmark or of a kind, with the labels of the training examples where nobody says them.

    Args:
        kind: The kind of task.
        row: The benchmark; None for the user's own data.
        examples: The training examples.
        own: Fields that the user set.

    Raises:
        DataError: If a field is unknown or the labels make no task.
    """
    task_class: Any = KINDS[kind]
    known = {field.name for field in fields(task_class) if field.init}
    said: dict[str, Any] = {}
    if row is not None:
        said = {**row.task_fields, "metrics": row.metrics, **({"labels": row.labels} if row.labels else {})}
    chosen = {**{name: value for name, value in said.items() if name in known}, **own}
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
