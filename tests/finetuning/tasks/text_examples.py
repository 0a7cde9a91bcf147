"""Texts with labels, and their way through batches, for the tests of tasks that take texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.examples import Label, TextExample
from maskwright.finetuning.features import Batcher, FeatureBatch, scoring_batches


def example(texts: Sequence[str], label: Label | None = None, key: str = "1") -> TextExample:
    return TextExample(key=key, texts=tuple(texts), label=label)


def labeled(labels: Sequence[Label | None]) -> list[TextExample]:
    return [example([f"text {number}"], label, key=f"line {number}") for number, label in enumerate(labels)]


def scored(task: Any, examples: list[TextExample], scores: np.ndarray[Any, Any], tokenizer: Tokenizer) -> list[Any]:
    """Run scores (a row an example) through batches in another order, and back."""
    features = task.features(examples, tokenizer, max_length=20, segments=True, training=False)
    by_unit: dict[int, Any] = {}
    for batch in scoring_batches(features, tokens=16, pad=0, device=torch.device("cpu")):
        rows = task.by_unit(torch.tensor(scores[batch.unit_numbers], dtype=torch.float32), batch)
        by_unit.update(zip(batch.unit_numbers.tolist(), rows, strict=True))
    return list(task.predictions([by_unit[unit] for unit in range(len(examples))], features, examples, tokenizer))


def a_batch(task: Any, examples: list[TextExample], tokenizer: Tokenizer) -> FeatureBatch:
    features = task.features(examples, tokenizer, max_length=20, segments=True, training=True)
    return Batcher(features, pad=0, tokens=10_000, device=torch.device("cpu")).batch(np.arange(features.num_units))
