"""Replaced token detection: who is asked, the head, the loss and what is counted."""

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for

from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, LossTerm, TargetTensors
from maskwright.core.types import HeadShape
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import ReplacedTokenDetection
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.pretext.replacement.base import corrupt

SHAPE = HeadShape(hidden_size=24, embedding_size=12, vocab_size=60, hidden_activation="gelu", layer_norm_eps=1e-12)
RTD = ReplacedTokenDetection()


def loss_of(hidden: torch.Tensor, head: torch.nn.Module, positions: list[int], is_replaced: list[int]) -> LossTerm:
    seen = torch.zeros(len(hidden), dtype=torch.int64)
    seen[positions] = torch.tensor(is_replaced)
    targets = TargetTensors(positions=torch.tensor(positions), labels=torch.zeros(len(positions), dtype=torch.int64))
    encoded = EncodedBatch(ids=seen, output=EncoderOutput(hidden, None), word_embeddings=torch.zeros(0, 0), heads={})
    return RTD.loss(head, LossInputs(encoded=encoded, targets=targets))


def scoring(scores: list[float]) -> tuple[torch.Tensor, torch.nn.Module]:
    """Hidden states and a head that scores them as given (positive, since GELU cuts negative values)."""
    head = RTD.head(SHAPE)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.dense.weight[0, 0] = head.dense_prediction.weight[0, 0] = 1
        head.dense_prediction.bias.fill_(-20.0)
    hidden = torch.zeros(len(scores), 24)
    hidden[:, 0] = torch.tensor(scores) + 20  # GELU of a number beyond 6 is the number itself.
    return hidden, head


def test_targets_are_all_tokens_with_specials_or_the_selected_ones_only() -> None:
    instances = batch_of([20, 7, 33])
    examples = corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)
    targets, few = RTD.targets(examples), ReplacedTokenDetection(loss_at="selected")
    assert targets.positions.tolist() == list(range(60))
    assert np.array_equal(targets.labels, instances.ids)
    assert targets.labels.dtype == np.int64
    assert np.array_equal(few.targets(examples).positions, examples.selection.positions)
    assert few.predictions_per_token(0.15, 128) == 0.15  # ELECTRA 15 %
    assert RTD.predictions_per_token(0.15, 128) == 1.0


def test_hits_misses_and_false_alarms_are_counted() -> None:
    #                  no target, hit, miss, alarm, right, right
    hidden, head = scoring([5.0, 2.0, -1.0, 3.0, -2.0, -4.0])
    term = loss_of(hidden, head, [1, 2, 3, 4, 5], [1, 1, 0, 0, 0])
    assert term.correct.item() == 3
    assert {name: value.item() for name, value in term.tallies.items()} == {"replaced": 2, "flagged": 2, "hit": 1}
    expected = sum(np.log1p(np.exp(score)) for score in (-2.0, 1.0, 3.0, -2.0, -4.0))
    assert term.total.item() == pytest.approx(expected, rel=1e-6)
    details = RTD.details({name: float(value) for name, value in term.tallies.items()}, 5)
    assert details == {"replaced": 0.4, "precision": 0.5, "recall": 0.5}
