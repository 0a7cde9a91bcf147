"""Set documents aside, and measure a model on them: the same sequences and the same masks every time."""

from dataclasses import dataclass

import numpy as np
import torch

from maskwright.core.randomness import keys
from maskwright.core.types import Documents, IntArray
from maskwright.training.batches import StepBatch, total_counts
from maskwright.training.model import PretrainingModel

_FEW_DOCUMENTS = 200
_SENTENCES_A_PIECE = 50


@dataclass(frozen=True, slots=True)
class Split:
    """Documents to train on and documents set aside."""

    train: Documents
    held_out: Documents


def split(documents: Documents, seed: int, share: float = 0.05, most_tokens: int = 60_000) -> Split:
    """Set aside whole documents, chosen by a keyed draw, until a share of the tokens or a number is reached.

    A corpus of few documents (a single book, say) is first cut into pieces of 50 sentences, so that something can be
    set aside at all; the layout then treats each piece as a document.

    Args:
        documents: All documents.
        seed: The run's seed.
        share: Largest share of all tokens to set aside.
        most_tokens: Most tokens to set aside.
    """
    pieces = documents if len(documents) >= _FEW_DOCUMENTS else _cut(documents)
    lengths = pieces.bounds(pieces.last) - pieces.bounds(pieces.first)
    order = np.argsort(keys(seed, "held-out", 0, np.arange(len(pieces))), kind="stable")
    limit = min(share * int(lengths.sum()), most_tokens)
    # Pieces are taken in the drawn order; one that would overrun the limit is passed over, later ones still tried,
    # but only among the first drawn: a limit must not select the shortest documents of the whole corpus.
    candidates = order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), 4 * limit)))]
    chosen: list[int] = []
    total = 0
    for piece, length in zip(candidates.tolist(), lengths[candidates].tolist(), strict=True):
        if total + length <= limit:
            chosen.append(piece)
            total += length
    aside = np.zeros(len(pieces), dtype=bool)
    aside[chosen] = True
    return Split(pieces.pick(~aside), pieces.pick(aside))


def _cut(documents: Documents) -> Documents:
    firsts: list[IntArray] = []
    lasts: list[IntArray] = []
    for first, last in zip(documents.first.tolist(), documents.last.tolist(), strict=True):
        edges = np.append(np.arange(first, last, _SENTENCES_A_PIECE), last)
        firsts.append(edges[:-1])
        lasts.append(edges[1:])
    return Documents(documents.sentence_ends, np.concatenate(firsts), np.concatenate(lasts))


@dataclass(frozen=True, slots=True)
class Baseline:
    """What guessing by frequency achieves at the held-out targets of masked language modelling.

    Attributes:
        loss: Cross entropy of the targets under the training corpus's unigram distribution, in nats.
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
        accuracy: Share predicted right.
        count: Predictions.
    """

    loss: float
    accuracy: float
    count: int


def measure(model: PretrainingModel, batches: list[StepBatch]) -> dict[str, Measured]:
    """Evaluate a model, dropout off, on fixed batches. Returns one value per objective that has a target."""
    counts = total_counts(batches)
    losses = dict.fromkeys(counts, 0.0)
    correct = dict.fromkeys(counts, 0)
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    with torch.inference_mode():
        for batch in batches:
            for micro in batch.micro_batches:
                for kind, term in model.losses(micro.to(device)).items():
                    losses[kind] += float(term.total)
                    correct[kind] += int(term.correct)
    model.train(was_training)
    return {
        kind: Measured(losses[kind] / count, correct[kind] / count, count) for kind, count in counts.items() if count
    }
