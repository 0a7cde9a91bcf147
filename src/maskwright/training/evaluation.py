"""Evaluation on held-out text: losses, the unigram baseline, and a verdict on both."""

import math
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


def health_line(measured: Measured, baseline: Baseline, vocab_size: int) -> str:
    """Say in a line how a masked language model stands on held-out text.

    Args:
        measured: Its loss and accuracy.
        baseline: What guessing by frequency achieves at the same targets.
        vocab_size: Entries; guessing blindly costs ln(vocab_size) nats.
    """
    loss, unigram = measured.loss, baseline.loss
    if not math.isfinite(loss) or loss > math.log(vocab_size) + 1:
        verdict = "worse than blind guessing: lower the learning rate"
    elif loss > 1.02 * unigram:
        verdict = "has not yet learnt how frequent words are"
    elif loss > 0.97 * unigram:
        verdict = "knows how frequent words are, uses no context yet (a plateau every such model passes)"
    elif loss > 0.8 * unigram:
        verdict = "has begun to use context"
    else:
        verdict = "uses context well"
    return (
        f"held-out loss {loss:.2f} nats against {unigram:.2f} for guessing by frequency; "
        f"{measured.accuracy:.1%} of hidden tokens right against {baseline.accuracy:.1%}: {verdict}"
    )


def detection_line(measured: Measured) -> str:
    """Say in a line how a detector of replaced tokens stands on held-out text.

    What it must beat is knowing only how many tokens are replaced: calling each one original is right for all the
    others, and costs the entropy of that share.

    Args:
        measured: Its loss, its accuracy and its details (`ReplacedTokenDetection.details`).
    """
    replaced = measured.details["replaced"]
    precision, recall = measured.details.get("precision"), measured.details.get("recall", 0.0)
    blind = _entropy(replaced)
    if not replaced:
        verdict = "nothing to detect: the generator guesses every token right"
    elif not math.isfinite(measured.loss):
        verdict = "the loss is not finite: lower the learning rate"
    elif recall < 0.01:
        verdict = "detects nothing yet: it calls every token original"
    elif measured.loss > 0.97 * blind:
        verdict = "no better yet than knowing how many are replaced"
    elif measured.loss > 0.8 * blind:
        verdict = "has begun to detect"
    else:
        verdict = "detects well"
    named = "it names none" if precision is None else f"{precision:.1%} of what it names is right"
    return (
        f"the generator replaced {replaced:.1%} of the tokens, {recall:.1%} of these are found, {named}; held-out loss "
        f"{measured.loss:.3f} nats against {blind:.3f} for knowing only how many there are: {verdict}"
    )


def _entropy(share: float) -> float:
    """Entropy of a yes that has this share, in nats."""
    return -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)
