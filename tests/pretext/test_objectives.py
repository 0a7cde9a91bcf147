"""Masked language modeling, next-sentence and sentence-order prediction: targets, heads, losses.

Losses and gradients are compared with those of transformers in tests/checkpoints/test_parity_with_transformers.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear

from maskwright.core.tensors import EncoderOutput, LossInputs, TargetTensors, View
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
        view=View(ids=torch.zeros(0, dtype=torch.int64), output=output, word_embeddings=embeddings, heads={}),
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


def test_mlm_loss_equals_logits_of_all_positions() -> None:
    torch.manual_seed(0)
    mlm = MaskedLanguageModeling()
    head, hidden = mlm.head(SHAPE), torch.randn(30, 24, requires_grad=True)
    torch.nn.init.normal_(head.bias)
    embeddings = torch.randn(60, 12, requires_grad=True)
    targets = targets_of([3, 4, 11, 29], [5, 59, 0, 7])
    term = mlm.loss(head, inputs_of(EncoderOutput(hidden, None), targets, embeddings))

    transformed = gelu(linear(hidden, head.dense.weight, head.dense.bias), approximate="tanh")
    transformed = layer_norm(transformed, (12,), head.layer_norm.weight, head.layer_norm.bias, 1e-12)
    logits = transformed @ embeddings.T + head.bias
    labels = torch.full((30,), -100)
    labels[targets.positions] = targets.labels
    expected = cross_entropy(logits, labels, reduction="sum")
    assert term.total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert term.correct.item() == (logits.argmax(dim=1) == labels).sum()
    leaves = (hidden, embeddings, *head.parameters())
    for mine, other in zip(torch.autograd.grad(term.total, leaves), torch.autograd.grad(expected, leaves), strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    chosen = mlm.logits(head, hidden[targets.positions], embeddings)
    assert torch.allclose(chosen, logits[targets.positions], atol=1e-5)


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
        assert parameter.grad is not None
        assert not parameter.grad.any()


def labeled(labels: list[int]) -> Examples:
    instances = batch_of([5] * len(labels))
    instances = replace(instances, pair_labels=np.array(labels, dtype=np.int8))
    nothing = np.zeros(0, dtype=np.int64)
    return Examples(instances=instances, selection=Selection(nothing, nothing), corrupted=instances.ids)


@pytest.mark.parametrize("objective", [NextSentencePrediction(), SentenceOrderPrediction()], ids=lambda each: each.kind)
def test_pair_objectives_ask_labeled_sequences_only(
    objective: NextSentencePrediction | SentenceOrderPrediction,
) -> None:
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
