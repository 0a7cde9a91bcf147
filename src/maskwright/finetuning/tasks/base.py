"""The door of this room: what a kind of task must be able to do."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import E
from maskwright.finetuning.features import FeatureBatch, Features

Scores = NDArray  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model says of one example.

    Attributes:
        key: The example's key.
        value: What is predicted, as JSON can hold it: a class, a number, a list of classes, a list of tags, a text, a
            number of an option.
        score: Probability of it, in [0, 1]; None where there is none (regression).
        details: More, as JSON can hold it: the probabilities of all classes, entities with offsets, other answers.
        of: What it is said of, for people to recognise: the text, both texts, the question. `maskwright.predict` tells
            it; elsewhere it is "". No part of what files of predictions hold.
    """

    key: str
    value: Any
    score: float | None
    details: Mapping[str, Any]
    of: str = field(default="", compare=False, repr=False)


class Task(ABC, Generic[E]):
    """One kind of task with its labels: a frozen value, the same for training, measuring and use.

    Attributes:
        kind: Its name: "classification", "regression", "multi_label", "tagging", "question_answering",
            "multiple_choice".
        head: What its head scores.
        labels: Names of the classes in the order of the head's scores; empty where there are none.
        num_outputs: Width of the head's last layer: classes; 1 for regression and choice; 2 for spans.
    """

    kind: ClassVar[str]
    head: ClassVar[HeadKind]
    labels: tuple[str, ...]

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Width of the head's last layer."""

    @abstractmethod
    def features(
        self, examples: Sequence[E], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Turn examples into sequences.

        Args:
            examples: All of one file.
            tokenizer: The model's.
            max_length: Tokens of a sequence at most, special ones counted.
            segments: Whether the encoder has segment embeddings for a second text.
            training: Whether units that cannot be learnt from are left out, and labels are wanted.
        """

    @abstractmethod
    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed loss in nats (squared error for regression) over the batch, and what to divide it by.

        Args:
            scores: The head's, in fp32. "sequence": (U', C); "token": (M', C) at `batch.positions`; "span": (T, 2) at
                every slot; "choice": (B, 1), an option each.
            batch: With labels.
        """

    @abstractmethod
    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut the head's scores into one array a unit, on the CPU, in the order of `batch.unit_numbers`.

        "sequence": (C,); "token": (tags, C); "span": (L, 2); "choice": (options,).
        """

    @abstractmethod
    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[E], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Turn the scores of all units into one prediction an example, in the order of the examples."""

    @abstractmethod
    def measure(self, predictions: Sequence[Prediction], examples: Sequence[E]) -> dict[str, float]:
        """Score predictions, the main metric first, each as published (e.g. accuracy in [0, 1], SQuAD's in percent).

        Raises:
            DataError: If examples have no labels.
        """

    @abstractmethod
    def check(self, examples: Sequence[E]) -> None:
        """Refuse what `measure` could not score, cheaply: it is asked before training, not after.

        Args:
            examples: Labelled ones.

        Raises:
            DataError: If a label is none that the task knows how to score; the first such example is named.
        """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` makes this task of again; it is kept beside the weights."""
