"""A number for a text or a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.errors import DataError
from maskwright.core.types import HeadKind
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import TextExample
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.finetuning.metrics.correlation import mean_absolute_error, pearson, r_squared, spearman
from maskwright.finetuning.tasks.base import Prediction, Scores, Task
from maskwright.finetuning.tasks.parts import as_json, check_metrics, require_labels, rows
from maskwright.finetuning.tasks.texts import features_of_texts, one_row_each

_LESS_IS_BETTER = "mean_absolute_error"
METRICS = ("r_squared", "pearson", "spearman", _LESS_IS_BETTER)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Task[TextExample]):
    """A number for a text or a pair, learnt by squared error.

    Attributes:
        metrics: What is reported, the main one first: "r_squared" (share of the numbers' variance that is told),
            "pearson", "spearman" (correlations, which do not see whether numbers are too large or too small
            throughout); beside these "mean_absolute_error", the smaller the better.
        offset: What is taken from targets in training and added to outputs in use.
        scale: What targets, less the offset, are divided by in training and outputs multiplied by in use: ELECTRA
            learns STS-B's 0 to 5 as 0 to 1 (electra: configure_finetuning.py), BERT and RoBERTa as it is.
        bounds: Least and greatest number that can be; predictions beyond are set to it. None for no bounds. What is
            measured is the output as it was, as GLUE's systems were: to set numbers to a bound makes them equal.
    """

    kind: ClassVar[str] = "regression"
    head: ClassVar[HeadKind] = "sequence"
    labels: tuple[str, ...] = field(default=(), init=False)
    metrics: tuple[str, ...] = METRICS
    offset: float = 0.0
    scale: float = 1.0
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics, METRICS, self.kind)
        if self.metrics[0] == _LESS_IS_BETTER:
            raise DataError(
                f"the main metric of a regression is {self.metrics[0]!r}, of which less is better",
                allowed=f"as the first one: {', '.join(name for name in METRICS if name != _LESS_IS_BETTER)}",
            )
        if not np.isfinite(self.offset):
            raise DataError(f"the offset of a regression is {self.offset!r}", allowed="a finite number")
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise DataError(f"the scale of a regression is {self.scale!r}", allowed="a number above 0")
        if self.bounds is not None and not (len(self.bounds) == 2 and self.bounds[0] < self.bounds[1]):
            raise DataError(
                f"the bounds of a regression are {self.bounds!r}", allowed="two numbers, the smaller one first"
            )

    @property
    def num_outputs(self) -> int:
        """Width of the head's last layer."""
        return 1

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, segments: bool, training: bool
    ) -> Features:
        """Turn examples into sequences (see `Task.features`)."""
        return features_of_texts(
            examples,
            tokenizer,
            max_length=max_length,
            segments=segments,
            training=training,
            target=lambda example: (_number(example) - self.offset) / self.scale,
            dtype=np.float32,
        )

    def loss(self, scores: Tensor, batch: FeatureBatch) -> tuple[Tensor, int]:
        """Return the summed squared error, of numbers in units of `scale`, and the number of units."""
        assert batch.labels is not None
        return F.mse_loss(scores.squeeze(1), batch.labels, reduction="sum"), len(batch.unit_numbers)

    def by_unit(self, scores: Tensor, batch: FeatureBatch) -> list[Scores]:
        """Cut scores into one array (1,) a unit."""
        return rows(scores)

    def predictions(
        self, scores: Sequence[Scores], features: Features, examples: Sequence[TextExample], tokenizer: Tokenizer
    ) -> list[Prediction]:
        """Give each example its number, within `bounds`; details say the output as it was where that differs."""
        if not examples:
            return []
        numbers = one_row_each(scores, features, examples)[:, 0].astype(np.float64) * self.scale + self.offset
        within = numbers if self.bounds is None else np.clip(numbers, *self.bounds)
        return [
            Prediction(
                key=example.key, value=value, score=None, details={} if value == number else {"unbounded": number}
            )
            for example, value, number in zip(examples, within.tolist(), numbers.tolist(), strict=True)
        ]

    def measure(self, predictions: Sequence[Prediction], examples: Sequence[TextExample]) -> dict[str, float]:
        """Compare with the examples' numbers (see `Task.measure`)."""
        require_labels(examples)
        labels = [_number(example) for example in examples]
        predicted = [prediction.details.get("unbounded", prediction.value) for prediction in predictions]
        known = {
            "r_squared": r_squared,
            "pearson": pearson,
            "spearman": spearman,
            _LESS_IS_BETTER: mean_absolute_error,
        }
        return {name: known[name](labels, predicted) for name in self.metrics}

    def check(self, examples: Sequence[TextExample]) -> None:
        """Refuse labels that are no numbers, or all the same one: no correlation has a value then."""
        if len({_number(example) for example in examples}) < 2:
            raise DataError(
                f"{len(examples)} examples with the same number can measure no correlation",
                allowed="two different numbers or more",
                todo="Where they are held out of few training examples, name a file of others with `--dev FILE`.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what `task_from_json` reads."""
        plain = as_json(self)
        if not self.offset:  # As before there was one, so that what was begun then goes on.
            del plain["offset"]
        return plain


def _number(example: TextExample) -> float:
    try:
        number = float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise DataError(
            f"example {example.key}: its label {example.label!r} is not a number",
            todo="Mend the row, or choose the task 'classification' for names.",
        )
    return number
