"""Measure a model on the held-out text: the same sequences and the same masks every time."""

from dataclasses import dataclass, field

import numpy as np
import torch

from maskwright.core.types import IntArray
from maskwright.training.batches import StepBatch, total_counts
from maskwright.training.model import PretrainingModel
from maskwright.training.tallies import Tallies


@dataclass(frozen=True, slots=True)
class Baseline:
    """What guessing by frequency achieves at the held-out targets of masked language modelling.

    Attributes:
        loss: Cross entropy of the targets under the whole corpus's unigram distribution, in nats.
        accuracy: Share of targets that are the corpus's most frequent token.
    """

    loss: float
    accuracy: float


def unigram_baseline(batches: list[StepBatch], token_counts: IntArray | None, kind: str = "mlm") -> Baseline | None:
    """Measure the unigram baseline at the targets of one objective; None if there are none."""
    labels = [
        micro.targets[kind].labels.numpy()
        for batch in batches
        for micro in batch.micro_batches
        if kind in micro.targets
    ]
    if token_counts is None or not labels or not sum(map(len, labels)):
        return None
    wanted = np.concatenate(labels)
    # Add-one smoothing: a held-out token may be absent from the training text.
    smoothed = token_counts.astype(np.float64) + 1
    log_shares = np.log(smoothed / smoothed.sum())
    return Baseline(
        loss=float(-log_shares[wanted].mean()), accuracy=float((wanted == int(token_counts.argmax())).mean())
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """One objective on the held-out text.

    Attributes:
        loss: Mean loss in nats over `count` predictions.
        accuracy: Share predicted right; None where no prediction is right or wrong.
        count: Predictions.
        details: Further shares, by name (`Objective.details`).
    """

    loss: float
    accuracy: float | None
    count: int
    details: dict[str, float] = field(default_factory=dict)


def measure(model: PretrainingModel, batches: list[StepBatch]) -> dict[str, Measured]:
    """Evaluate a model, dropout off, on fixed batches. Returns one value per objective that has a target."""
    counts = total_counts(batches)
    losses = dict.fromkeys(counts, 0.0)
    correct = dict[str, int]()
    tallies = Tallies()
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    with torch.inference_mode():
        for batch in batches:
            for micro in batch.micro_batches:
                for kind, term in model.losses(micro.to(device)).items():
                    losses[kind] += float(term.total)
                    if term.correct is not None:
                        correct[kind] = correct.get(kind, 0) + int(term.correct)
                    tallies.add(kind, term)
    model.train(was_training)
    details = tallies.details(model.objectives, counts)
    return {
        kind: Measured(
            losses[kind] / count, correct[kind] / count if kind in correct else None, count, details.get(kind, {})
        )
        for kind, count in counts.items()
        if count
    }
