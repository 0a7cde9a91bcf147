"""Masked language modeling, next-sentence and sentence-order prediction: targets, heads, losses.

Losses and gradients are compared with those of transformers in tests/checkpoints/test_parity_with_transformers.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for

from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, TargetTensors
from maskwright.core.types import Examples, HeadShape, Selection
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import (
    MaskedLanguageModeling,
    NextSentencePrediction,
    Objective,
    ReplacedTokenDetection,
    ReplaceMLM,
    SentenceOrderPrediction,
    SpanBoundaryObjective,
)
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.pretext.replacement.base import corrupt

SHAPE = HeadShape(hidden_size=24, embedding_size=12, vocab_size=60, hidden_activation="gelu_tanh", layer_norm_eps=1e-12)


def inputs_of(output: EncoderOutput, targets: TargetTensors, embeddings: torch.Tensor) -> LossInputs:
    return LossInputs(
        encoded=EncodedBatch(
            ids=torch.zeros(0, dtype=torch.int64), output=output, word_embeddings=embeddings, heads={}
        ),
        targets=targets,
    )


def targets_of(positions: list[int], labels: list[int]) -> TargetTensors:
    tensors = [torch.tensor(values, dtype=torch.int64) for values in (positions, labels)]
    return TargetTensors(positions=tensors[0], labels=tensors[1], extra={})


def test_mlm_targets_are_the_original_tokens_kept_ones_included() -> None:
    instances = batch_of([100] * 20)
    examples = corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)
    targets = MaskedLanguageModeling().targets(examples)
    assert np.array_equal(targets.positions, examples.selection.positions)
    assert np.array_equal(targets.labels, instances.ids[targets.positions])
    assert (examples.corrupted[targets.positions] == targets.labels).any()
    assert targets.count == 20 * 15
    assert targets.labels.dtype == np.int64


def test_mlm_counts_the_predictions_that_its_logits_get_right() -> None:
    torch.manual_seed(0)
    mlm = MaskedLanguageModeling()
    head, hidden, embeddings = mlm.head(SHAPE), torch.randn(30, 24), torch.randn(60, 12)
    best = mlm.logits(head, hidden, embeddings).argmax(dim=1)
    labels = [int(best[3]), int(best[4]), int(best[11] + 1) % 60, int(best[29] + 1) % 60]
    term = mlm.loss(head, inputs_of(EncoderOutput(hidden, None), targets_of([3, 4, 11, 29], labels), embeddings))
    assert term.correct.item() == 2


@pytest.mark.parametrize(
    "objective",
    [
        MaskedLanguageModeling(),
        NextSentencePrediction(),
        ReplacedTokenDetection(),
        ReplaceMLM(),
        ReplaceMLM(loss_at="everywhere"),
        SpanBoundaryObjective(),
    ],
    ids=lambda each: f"{each.kind} {getattr(each, 'loss_at', '')}",
)
def test_without_targets_the_loss_is_zero_and_still_differentiable(objective: Objective) -> None:
    head, nothing = objective.head(SHAPE), torch.zeros(0, dtype=torch.int64)
    targets = TargetTensors(
        positions=nothing,
        labels=nothing,
        extra={"position": nothing},
        anchors={"left": nothing, "right": nothing},
    )
    hidden = torch.randn(6, 24, requires_grad=True)
    output = EncoderOutput(hidden, hidden[:2])
    term = objective.loss(head, inputs_of(output, targets, torch.randn(60, 12)))
    assert (term.total.item(), term.correct.item()) == (0.0, 0)
    term.total.backward()
    for parameter in (hidden, *head.parameters()):
        assert not parameter.grad.any()


def labeled(labels: list[int]) -> Examples:
    instances = batch_of([5] * len(labels))
    instances = replace(instances, pair_labels=np.array(labels, dtype=np.int8))
    nothing = np.zeros(0, dtype=np.int64)
    return Examples(instances=instances, selection=Selection(nothing, nothing), corrupted=instances.ids)


@pytest.mark.parametrize("objective", [NextSentencePrediction(), SentenceOrderPrediction()], ids=lambda each: each.kind)
def test_pair_objectives_ask_labeled_sequences_only(objective):
    targets = objective.targets(labeled([1, -1, 0, -1, 1]))
    assert targets.positions.tolist() == [0, 2, 4]
    assert targets.labels.tolist() == [1, 0, 1]


def test_mlm_bias_can_begin_at_the_frequencies_of_the_corpus() -> None:
    shape = HeadShape(hidden_size=4, embedding_size=4, vocab_size=3, hidden_activation="gelu", layer_norm_eps=1e-12)
    objective = MaskedLanguageModeling(initial_bias="frequencies")
    head = objective.head(shape)
    objective.prepare(head, np.array([0, 9, 99]))
    shares = torch.softmax(head.bias, dim=0)
    torch.testing.assert_close(shares, torch.tensor([1.0, 10.0, 100.0]) / 111)
    plain = MaskedLanguageModeling().head(shape)
    MaskedLanguageModeling().prepare(plain, np.array([0, 9, 99]))
    assert not plain.bias.any()
