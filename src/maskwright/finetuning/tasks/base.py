"""The interface of a task, and helpers that several tasks share."""

import contextlib
import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError, nearest, unknown_name
from maskwright.core.spec import Spec
from maskwright.core.types import HeadKind
from maskwright.finetuning.features import FeatureBatch, Features, Layout
from maskwright.finetuning.metrics.scores import Report
from maskwright.finetuning.readers.options import Kind, Names, name_list
from maskwright.fitting.rules import Choice

Scores = NDArray  # type: ignore[type-arg]
AS_NAMES, NOT_EMPTY = BeforeValidator(name_list), Field(min_length=1)
"""Constraints on a task's `metrics`: a list of names, the main one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A model's prediction for the example with this key; JSON-compatible.

    Attributes:
        value: A class, a number, a list of classes, a list of tags, an answer text, an option's index.
        score: Its probability in [0, 1]; None for regression and for tags, which have one each.
        details: Probabilities of all classes, entities with character offsets, other answers.
        truncated: Whether the model read only a part of the input.
        input_text: The input for display. Set by `maskwright.predict` only; not written to prediction files.
    """

    key: str
    value: Any
    score: float | None
    details: Mapping[str, Any]
    truncated: bool = False
    input_text: str = field(default="", compare=False, repr=False)


@functools.cache
def constant_on(device: torch.device, values: tuple[float, ...]) -> Tensor:
    """Return numbers as a tensor, which is copied to the device once: a copy in each step waits for the GPU."""
    with torch.inference_mode(False):
        return torch.tensor(values, device=device)


class Task(Spec, ABC):
    """A task with its labels and settings: an immutable value for training, evaluation and prediction.

    Attributes:
        labels: Names of the classes in the order of the head's outputs; empty for tasks without classes.
        head: What its head scores.
        outputs: Width of the head's last layer for tasks without classes.
        label_word: What a label is called; "" for tasks without classes.
    """

    kind: Kind
    labels: Names = ()
    head: ClassVar[HeadKind]
    outputs: ClassVar[int] = 1
    label_word: ClassVar[str] = ""
    weight: ClassVar[float] = 1.0
    """Of its loss in `training.steps.step`: a task is the objective of fine-tuning."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        labels, what = self.labels, self.label_word
        if what and len(labels) < 2:
            problem = f"only {labels[0]!r}" if labels else "none"
            raise DataError(
                f"a classifier needs two or more {what}s; found {problem}",
                hint=f"Check which column holds the {what}s, or train on a file that contains all of them.",
            )
        if what and len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise DataError(f"the {what} {twice!r} is listed twice", hint=f"List each {what} once.")
        return self

    @classmethod
    def infer_fields(cls, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the fields that follow from the training examples, e.g. their labels."""
        return {}

    def fitted(self, examples: Sequence[Any], fixed: Collection[str]) -> tuple[Self, tuple[Choice, ...]]:
        """Return the task with settings that follow from the training examples' labels; `fixed` fields are kept."""
        return self, ()

    @property
    def num_outputs(self) -> int:
        return len(self.labels) or self.outputs

    @abstractmethod
    def features(self, examples: Sequence[Any], layout: Layout, *, training: bool) -> Features:
        """Tokenize examples and lay them out as sequences; in training with labels, which all examples then have.

        DataError if the maximum length leaves no space for text, or a label does not fit the task.
        """

    def loss(self, scores: Tensor, labels: Tensor, batch: FeatureBatch) -> Tensor:
        """Return the loss in nats (squared error for regression), summed over the batch's labels; here cross entropy.

        `scores` are the head's outputs in fp32 for the U' units and M' targets of the batch: "sequence" (U', C);
        "token" (M', C) at `batch.positions`; "span" (T, 2); "choice" (B, 1), one row per option.
        """
        return F.cross_entropy(scores, labels, reduction="sum")

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return no further numbers of a step (see `Objective.details`)."""
        return {}

    def predictions(self, scores: Scores, features: Features, examples: Sequence[Any]) -> list[Prediction]:
        """Decode the head's outputs into one prediction per example, in the order of the examples.

        `scores`: "sequence" (U, C); "token" (M, C); "span" (T, 2); "choice" (B, 1), in the order of `features`.
        """
        predictions = self.decode(scores, features, examples)
        for number in features.truncated.tolist():
            predictions[number] = replace(predictions[number], truncated=True)
        return predictions

    @abstractmethod
    def decode(self, scores: Scores, features: Features, examples: Sequence[Any]) -> list[Prediction]:
        """Decode the head's outputs as `predictions` does, without saying which examples were truncated."""

    @abstractmethod
    def measure(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Compute the metrics, the main one first, on their usual scale (accuracy in [0, 1], SQuAD's in percent).

        `examples` have labels and passed `check`.
        """

    def tuned(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> Self:
        """Return the task with the settings that score best, given predictions for the development examples."""
        return self

    def limit(self, layout: Layout) -> str:
        """Return what truncated examples have: "more than 128 tokens"."""
        return f"more than {layout.max_length} tokens"

    def check(self, examples: Sequence[Any]) -> None:
        """Raise `DataError` that names the first labeled example that `measure` could not score."""

    def report(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> Report:
        """Return scores by class or entity type, and the confusion matrix; empty for tasks without."""
        return Report({}, {})

    def to_json(self) -> dict[str, Any]:
        """Return plain data for `task_from_json`; saved beside the weights."""
        optional = ("labels", "class_weights")  # Earlier versions lack the latter.
        return self.model_dump(mode="json", exclude={name for name in optional if not getattr(self, name, ())})


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted by value if all are finite numbers, else alphabetically."""
    distinct = sorted(set(labels))
    with contextlib.suppress(ValueError):
        values = {label: float(label) for label in distinct}
        if all(map(math.isfinite, values.values())):
            distinct.sort(key=values.__getitem__)
    return tuple(distinct)


def unknown_label(where: str, label: object, labels: Sequence[str], what: str = "label") -> DataError:
    """Return the error for a label that the task does not have; `where` is "line 3", or a field."""
    return unknown_name(DataError, what, str(label), labels, f"{where}: ")


def unmapped_label(where: str, label: str, labels: Sequence[str]) -> DataError:
    """Return the error for an example whose label the task does not have, with the `--read` setting that maps it."""
    error = unknown_label(where, label, labels)
    # Quoted, since YAML reads some labels as other values.
    # A number is the index of a class in many files.
    by_index = labels[int(label)] if label.isdecimal() and int(label) < len(labels) else "LABEL"
    written, meant = (json.dumps(name, ensure_ascii=False) for name in (label, nearest(label, labels) or by_index))
    hint = f"Map it, e.g. `--read {quote(f'label_names=[[{written}, {meant}]]')}`, or drop its rows (`dropped_labels`)."
    return DataError(error.problem, allowed=error.allowed, hint=" ".join(filter(None, [error.hint, hint])))


def sigmoid(scores: Scores) -> Scores:
    probabilities: Scores = 1 / (1 + np.exp(-scores))
    return probabilities


def softmax(scores: Scores) -> Scores:
    """Return probabilities over the last axis, in double precision."""
    values = np.asarray(scores, dtype=np.float64)
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    probabilities: Scores = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities
