"""What several kinds of tasks do alike: finding and numbering labels, probabilities, JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.errors import DataError, nearest, unknown_name
from maskwright.core.plain_yaml import read_yaml
from maskwright.finetuning.examples import Example, has_label
from maskwright.finetuning.readers import as_name
from maskwright.finetuning.tasks.base import Scores


def sorted_labels(found: Iterable[str]) -> tuple[str, ...]:
    """Return different labels in the order of a head's scores: by number if all are numbers, else by alphabet."""
    labels = set(found)
    if all(_is_number(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_labels(labels: Sequence[str], what: str = "label") -> None:
    """Refuse labels that no classifier can have.

    Raises:
        DataError: If there are fewer than two, or one stands twice.
    """
    if len(labels) < 2:
        found = f"only {labels[0]!r}" if labels else "none"
        raise DataError(
            f"there must be two or more {what}s to tell apart; found {found}",
            todo="Check which column holds them, or train on a file that has them all.",
        )
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise DataError(f"the {what} {twice!r} stands twice among the {what}s", todo="List each once.")


def check_metrics(metrics: Sequence[str], known: Iterable[str], kind: str) -> None:
    """Refuse metrics that a kind of task does not have.

    Raises:
        DataError: If there is none, or one is unknown.
    """
    known = tuple(known)
    if not metrics:
        raise DataError(f"a task of the kind {kind!r} needs a metric", allowed=", ".join(known))
    for name in metrics:
        if name not in known:
            problem, allowed, todo = unknown_name(f"metric of the task {kind!r}", name, known)
            raise DataError(problem, allowed=allowed, todo=todo)


def number_of(labels: Sequence[str]) -> dict[str, int]:
    """Return the number of each label in the head's scores."""
    return {label: number for number, label in enumerate(labels)}


def unknown_label(where: str, label: object, labels: Sequence[str], what: str = "label") -> DataError:
    """Return the error for a label that the task does not have; `where` is "example 3", or a field."""
    problem, allowed, todo = unknown_name(what, str(label), labels)
    return DataError(f"{where}: {problem}", allowed=allowed, todo=todo)


def unknown_label_of(example: str, label: str, labels: Sequence[str], *, one_each: bool = True) -> DataError:
    """Return the error for an example's label that the task does not have, with the settings of reading that mend it.

    Args:
        example: Its key.
        label: The label.
        labels: The task's.
        one_each: Whether examples have one label each, so that those with this one can be left out.
    """
    error = unknown_label(f"example {example}", label, labels)
    meant = nearest(label, labels) or labels[0]
    todo = f"Say which label it is, e.g. `--read {quote(f'label_names=[[{_in_yaml(label)}, {_in_yaml(meant)}]]')}`"
    if one_each:
        todo += f", or leave such examples out, `--read {quote(f'dropped_labels=[{_in_yaml(label)}]')}`"
    return DataError(error.problem, allowed=error.allowed, todo=" ".join(filter(None, [error.todo, f"{todo}."])))


def _in_yaml(label: str) -> str:
    """Write a label as an item of a list on the command line; in quotes where it would be read as something else."""
    try:
        as_it_is = [as_name(item) for item in read_yaml(f"[{label}]")]
    except ValueError:
        as_it_is = []
    return label if as_it_is == [label] else json.dumps(label, ensure_ascii=False)


def learnable(examples: Sequence[Example], can_be: Sequence[bool] | None = None) -> NDArray[np.int64]:
    """Return the numbers of the examples that can be learnt from.

    Args:
        examples: Labelled ones and others.
        can_be: Which can be; None: those with a label.

    Raises:
        DataError: If none can.
    """
    chosen = np.flatnonzero(np.array([*map(has_label, examples)] if can_be is None else can_be, dtype=bool))
    if not len(chosen):
        raise DataError(
            f"none of the {len(examples)} examples has a label",
            allowed="labelled examples for training and measuring",
            todo="Test files often come without labels: choose the train or the dev file, or name the column.",
        )
    return chosen


def require_labels(examples: Sequence[Example]) -> None:
    """Refuse to measure what cannot be measured.

    Raises:
        DataError: If there are no examples, or one has no label.
    """
    if not examples:
        raise DataError("there is no example to measure")
    lacking = [example.key for example in examples if not has_label(example)]
    if lacking:
        raise DataError(
            f"{len(lacking)} of {len(examples)} examples have no label to compare with, the first is {lacking[0]}",
            todo="Measure on a labelled file; `maskwright predict` needs no labels.",
        )


def rows(scores: Tensor, counts: Sequence[int] | None = None) -> list[Scores]:
    """Cut scores into one array a unit, on the CPU.

    Args:
        scores: Shape (N, C).
        counts: Rows of each unit, in order; None for one row each, given without the first axis.
    """
    values = scores.detach().float().cpu().numpy()
    if counts is None:
        return list(values)
    return np.split(values, np.cumsum(counts)[:-1]) if len(counts) else []


def softmax(scores: Scores) -> Scores:
    """Return probabilities over the last axis, in double precision."""
    values = np.asarray(scores, dtype=np.float64)
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    probabilities: Scores = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities


def as_json(task: Any) -> dict[str, Any]:
    """Return a task's kind and fields as JSON can hold them."""
    values = {field.name: getattr(task, field.name) for field in fields(task) if field.init}
    return {
        "kind": task.kind,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
    }


def from_json(task_class: type[Any], data: Mapping[str, Any]) -> Any:
    """Make a task of what `as_json` gave.

    Raises:
        DataError: If a field is unknown or missing.
    """
    known = [field.name for field in fields(task_class) if field.init]
    values = {name: value for name, value in data.items() if name != "kind"}
    for name in values:
        if name not in known:
            problem, allowed, todo = unknown_name(f"field of the task {task_class.kind!r}", name, known)
            raise DataError(problem, allowed=allowed, todo=todo)
    try:
        return task_class(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
    except TypeError as error:
        raise DataError(f"a task of the kind {task_class.kind!r} cannot be made: {error}") from error
