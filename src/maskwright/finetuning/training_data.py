"""What a training learns from and is chosen by: features of the examples, made once for each length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import Example, TextExample
from maskwright.finetuning.features import Features
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.tasks.base import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What a training learns from and is chosen by.

    Attributes:
        train: Features of the training examples.
        dev: Features of the development examples.
        dev_examples: The development examples.
    """

    train: Features
    dev: Features
    dev_examples: Sequence[Example]


class TrainingDataMaker:
    """Makes the features of some examples as settings ask for them.

    Args:
        tokenizer: The model's.
        segments: Whether the model knows the second text of a pair by its segment.
        train, dev: Examples.
    """

    def __init__(self, *, tokenizer: Tokenizer, segments: bool, train: Sequence[Any], dev: Sequence[Any]) -> None:
        self._tokenizer, self._segments = tokenizer, segments
        self._train, self._dev = train, dev
        self._made: dict[tuple[Task[Any], int, bool], TrainingData] = {}

    def __call__(self, task: Task[Any], settings: Hyperparameters) -> TrainingData:
        """Return the features; they depend on the task and on two settings only, and are made once for each."""
        key = (task, settings.max_length, settings.double_unordered)
        if key not in self._made:
            self._made[key] = TrainingData(
                train=self._to_learn(task, settings),
                dev=self._features(task, self._dev, settings.max_length, training=False),
                dev_examples=self._dev,
            )
        return self._made[key]

    def _to_learn(self, task: Task[Any], settings: Hyperparameters) -> Features:
        once = self._features(task, self._train, settings.max_length, training=True)
        others = swapped(self._train) if settings.double_unordered else []
        if not others:
            return once
        both = self._features(task, [*self._train, *others], settings.max_length, training=True)
        # A pair that is cut is one example that is cut, in whichever order.
        return replace(both, num_cut=once.num_cut)

    def _features(self, task: Task[Any], examples: Sequence[Any], max_length: int, *, training: bool) -> Features:
        return task.features(
            examples, self._tokenizer, max_length=max_length, segments=self._segments, training=training
        )


def swapped(examples: Sequence[Any]) -> list[TextExample]:
    """Return every pair among the examples with its texts in the other order."""
    return [
        replace(example, texts=example.texts[::-1])
        for example in examples
        if isinstance(example, TextExample) and len(example.texts) == 2
    ]
