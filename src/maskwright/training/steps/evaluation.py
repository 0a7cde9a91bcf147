"""Evaluation on held-out text: losses, the unigram baseline, a verdict on both, divergence.

The rules for the health of training:

| finding | rule | what happens |
|---|---|---|
| no target, or a loss or gradient that is not finite | `step.py` | the run stops before the update, naming the batch |
| spike (`runs/monitor.py`) | loss or gradient norm 7 deviations above the mean of the last 1,000 steps | a message |
| divergence | held-out loss above both twice its first value and the unigram baseline, or not finite | the run stops |

Weights that are not finite are divergence too. It is looked for at every evaluation and before every checkpoint.
Spikes are those that the spike score of OLMo 2 counts (Team OLMo 2025, arXiv:2501.00656). The limit follows Wortsman
et al. (2023, arXiv:2309.14322), whose LR sensitivity caps losses at that of the initialization. Here it is twice the
held-out loss before the first step, and at least the unigram baseline, because the loss of a continued model rises
while its learning rate warms up.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.types import IntArray
from maskwright.training.ranks.distributed import all_gather_object, rank, world_size
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.optimizer import total_norm
from maskwright.training.steps.step import ObjectiveResult, Sums, results_of
from maskwright.training.steps.transfer import move

_DIVERGED = 2.0
PLATEAU = 0.97
"""A loss of masked language modeling above this multiple of the unigram baseline's is on the plateau at the start of
training, where a model predicts by frequency."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The unigram baseline at the held-out targets of masked language modeling.

    The loss is the cross entropy under the whole corpus's unigram distribution, in nats; the accuracy is the share of
    targets that are the corpus's most frequent token.
    """

    loss: float
    accuracy: float


def unigram_baseline(batches: list[StepBatch], token_counts: IntArray | None) -> Baseline | None:
    """Measure the unigram baseline at the targets of masked language modeling; None if there are none."""
    labels = _labels(batches, "mlm")
    if token_counts is None or not len(labels):
        return None
    return Baseline(
        loss=float(-log_shares(token_counts)[labels].mean()),
        accuracy=float((labels == int(token_counts.argmax())).mean()),
    )


def log_shares(token_counts: IntArray) -> NDArray[np.float64]:
    """Return the log probabilities of the unigram model, shape (V,).

    By add-one smoothing, since a held-out token may be absent from the training text.
    """
    smoothed = token_counts.astype(np.float64) + 1
    shares: NDArray[np.float64] = np.log(smoothed / smoothed.sum())
    return shares


def majority_share(batches: list[StepBatch], kind: str) -> float:
    """Return the share of the most frequent label among the targets of a sequence objective; 0 if there are none."""
    labels = _labels(batches, kind)
    return float(np.bincount(labels).max() / len(labels)) if len(labels) else 0.0


def _labels(batches: list[StepBatch], kind: str) -> IntArray:
    micros = [micro for batch in batches for micro in batch.micro_batches if kind in micro.targets]
    return np.concatenate([np.empty(0, dtype=np.int64), *(micro.targets[kind].labels.numpy() for micro in micros)])


def measure(model: PretrainingModel, batches: list[StepBatch]) -> dict[str, ObjectiveResult]:
    """Evaluate a model, dropout off, on fixed batches. Returns one value per objective that has a target."""
    counts = sum((Counter(batch.counts) for batch in batches), Counter[str]())
    sums = Sums()
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    with torch.inference_mode():
        for micro in [micro for batch in batches for micro in batch.micro_batches][rank() :: world_size()]:
            for kind, term in model.losses(move(micro, device)).items():
                sums.add_term(kind, term)
    model.train(was_training)
    numbers: dict[str, Counter[str]] = defaultdict(Counter)
    for part in all_gather_object(sums.to_host().read()):  # A rank need not have all names.
        for kind, of_kind in part.items():
            numbers[kind].update(of_kind)
    return results_of(model.objectives, counts, numbers)


def health_line(measured: ObjectiveResult, baseline: Baseline, vocab_size: int) -> str:
    """Return one line on the quality of masked language modeling on held-out text.

    The verdict compares loss and accuracy with the unigram baseline, and the loss with uniform guessing,
    ln(vocab_size) nats.
    """
    loss, unigram = measured.loss, baseline.loss
    if not math.isfinite(loss) or loss > math.log(vocab_size) + 1:
        verdict = "worse than uniform guessing: lower the learning rate"
    elif loss >= unigram:
        verdict = "not better than the unigram baseline yet"
    elif measured.accuracy is not None and measured.accuracy < baseline.accuracy:
        verdict = "not better than the unigram baseline in accuracy yet"
    elif loss > PLATEAU * unigram:
        verdict = "hardly better than the unigram baseline (an early plateau)"
    elif loss > 0.8 * unigram:
        verdict = "has begun to use context"
    else:
        verdict = "uses context well"
    return (
        f"held-out MLM loss {loss:.2f} (unigram baseline {unigram:.2f}), accuracy {measured.accuracy:.1%} "
        f"(baseline {baseline.accuracy:.1%}): {verdict}"
    )


def detection_line(measured: ObjectiveResult) -> str:
    """Return one line on the quality of replaced token detection on held-out text.

    The baseline knows only the share of replaced tokens; its loss is the entropy of that share.
    """
    replaced = measured.details["replaced"]
    precision, recall = measured.details.get("precision"), measured.details.get("recall", 0.0)
    baseline = -sum(share * math.log(share) for share in (replaced, 1 - replaced) if share > 0)
    if not replaced:
        verdict = "nothing to detect: the generator predicts every token correctly"
    elif not math.isfinite(measured.loss):
        verdict = "the loss is not finite: lower the learning rate"
    elif recall < 0.01:
        verdict = f"detects nothing yet: predicts 'original' for {'' if precision is None else 'almost '}every token"
    elif measured.loss > 0.97 * baseline:
        verdict = "no better than the baseline yet"
    elif measured.loss > 0.8 * baseline:
        verdict = "has begun to detect"
    else:
        verdict = "detects well"
    shown = "undefined" if precision is None else f"{precision:.1%}"
    return (
        f"held-out RTD loss {measured.loss:.3f} (baseline {baseline:.3f}), recall {recall:.1%}, precision {shown}; "
        f"{replaced:.1%} of the tokens are replaced: {verdict}"
    )


def restoration_line(measured: ObjectiveResult) -> str:
    """Return one line on the quality of Replace MLM or All-Tokens MLM on held-out text."""
    restored = measured.details.get("restored")
    shown = "" if restored is None else f" ({restored:.1%} at replaced tokens)"
    return (
        f"held-out loss of the original text {measured.loss:.2f}, accuracy {measured.accuracy:.1%}{shown}; "
        f"{measured.details['replaced']:.1%} of the predicted tokens are replaced"
    )


def vector_line(measured: ObjectiveResult) -> str:
    """Return one line on a student's sentence vectors on held-out text."""
    ranked = measured.details.get("spearman")
    order = "" if ranked is None else f"; Spearman correlation of the similarities of any two texts {ranked:.3f}"
    return f"held-out sentence vectors: mean cosine with the teacher's {measured.details['mean']:.3f}{order}"


def pair_line(kind: str, measured: ObjectiveResult, majority: float) -> str:
    """Return one line on a sequence objective (nsp, sop) on held-out text."""
    return (
        f"held-out {kind.upper()} loss {measured.loss:.3f}, accuracy {measured.accuracy:.1%} (most frequent label "
        f"{majority:.1%})"
    )


def divergence(loss: float, first_loss: float, baseline: float, weights: Iterable[Tensor]) -> str:
    """Say why a run has diverged; "" if it has not.

    The losses are on held-out text (0 if there is none): now, before the first step, and of the unigram baseline.
    """
    if not math.isfinite(loss) or loss > max(_DIVERGED * first_loss, baseline):
        return f"the held-out loss is {loss:.4g}, before the first step it was {first_loss:.4g}"
    return "" if total_norm(list(weights)).isfinite() else "weights are not finite"
