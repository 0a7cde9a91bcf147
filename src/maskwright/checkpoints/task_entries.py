"""Convert the config.json entries of fine-tuned models: labels, problem type, dropout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from maskwright.checkpoints.families import Family
from maskwright.checkpoints.refusals import refuse_other_entries
from maskwright.core.errors import ConversionError
from maskwright.core.types import HeadKind

ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
"""Hugging Face's names for the meaning of a sequence's scores; its text pipeline uses them."""

# Hugging Face's default number of labels.
_ASSUMED_LABELS = 2
_MAX_LABELS = 1 << 20
# Heads without labels: start and end of an answer; one score per option.
_WIDTHS: Mapping[HeadKind, int] = {"span": 2, "choice": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntries:
    """A head for labeled examples, as config.json describes it.

    Attributes:
        labels: Names of the scores, in their order; empty for "span" and "choice".
        problem_type: None if it follows from the head or is not stated.
        dropout: Rate before the last layer.
    """

    head: HeadKind
    labels: tuple[str, ...] = ()
    problem_type: ProblemType | None = None
    dropout: float = 0.0

    @property
    def num_outputs(self) -> int:
        """Width of the last layer."""
        return _WIDTHS.get(self.head, len(self.labels))


def unnamed_labels(number: int) -> tuple[str, ...]:
    """Return Hugging Face's names for unnamed labels."""
    return tuple(f"LABEL_{index}" for index in range(number))


def entries_to_json(family: Family, task: TaskEntries) -> dict[str, Any]:
    """Return the entries of config.json that a class with such a head reads."""
    data: dict[str, Any] = {}
    if task.head not in _WIDTHS:
        data["id2label"] = {str(number): label for number, label in enumerate(task.labels)}
        data["label2id"] = {label: number for number, label in enumerate(task.labels)}
    if task.problem_type is not None:
        data["problem_type"] = task.problem_type
    row = family.tasks[task.head]
    if row.dropout is not None and row.dropout.name is not None:
        data[row.dropout.name] = task.dropout
    return data | dict(row.constants)


def entries_from_json(
    family: Family, data: Mapping[str, Any], head: HeadKind, hidden_dropout: float, source: str
) -> TaskEntries:
    """Return the description of a head from the content `data` of the config.json at `source`.

    Raises ConversionError if the labels are not numbered from 0, or an entry has an unsupported value.
    """
    row = family.tasks[head]
    refuse_other_entries(data, row.constants, source)
    problem_type = data.get("problem_type") if head == "sequence" else None
    if problem_type not in (None, *get_args(ProblemType)):
        raise ConversionError(f"{source}: problem_type is {problem_type!r}", allowed=", ".join(get_args(ProblemType)))
    dropout = 0.0
    if row.dropout is not None:
        dropout = row.dropout.rate(data.get(row.dropout.name) if row.dropout.name else None, hidden_dropout)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        assert row.dropout is not None
        raise ConversionError(f"{source}: {row.dropout.name} is {dropout!r}", allowed="a rate, at least 0 and below 1")
    return TaskEntries(
        head=head,
        labels=() if head in _WIDTHS else _labels(data, source),
        problem_type=problem_type,
        dropout=float(dropout),
    )


def _labels(data: Mapping[str, Any], source: str) -> tuple[str, ...]:
    names = data.get("id2label")
    if names is None:
        number = data.get("num_labels", _ASSUMED_LABELS)
        if type(number) is not int or not 1 <= number <= _MAX_LABELS:
            raise ConversionError(f"{source}: num_labels is {number!r}", allowed=f"1 to {_MAX_LABELS:,}")
        return unnamed_labels(number)
    if not isinstance(names, dict) or not names or sorted(names) != sorted(map(str, range(len(names)))):
        raise ConversionError(
            f"{source}: id2label is {names!r}",
            allowed='an object that maps numbers from 0 to names, e.g. {"0": "negative", "1": "positive"}',
        )
    return tuple(str(names[str(number)]) for number in range(len(names)))
