"""Replace MLM and All-Tokens MLM: targets, losses and what is counted."""

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for
from torch import Tensor
from torch.nn.functional import cross_entropy

from maskwright.core.tensors import EncoderOutput, LossInputs, LossTerm, TargetTensors, View
from maskwright.core.types import HeadShape
from maskwright.kernels import ops
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, ReplaceMLM
from maskwright.pretext.replacement import MaskRandomKeep

SHAPE = HeadShape(hidden_size=24, embedding_size=12, vocab_size=60, hidden_activation="gelu", layer_norm_eps=1e-12)
SELECTED, EVERYWHERE = ReplaceMLM(), ReplaceMLM(loss_at="everywhere")


def case(objective: ReplaceMLM) -> tuple[torch.nn.Module, Tensor, Tensor, TargetTensors]:
    """A head, hidden states, word embeddings and 40 targets, every fourth of which was replaced."""
    torch.manual_seed(0)
    head = objective.head(SHAPE)
    torch.nn.init.normal_(head.bias)
    labels = torch.randint(60, (40,))
    inputs = torch.where(torch.arange(40) % 4 == 0, (labels + 1) % 60, labels)
    targets = TargetTensors(positions=torch.arange(5, 45), labels=labels, extra={"inputs": inputs})
    return head, torch.randn(50, 24, requires_grad=True), torch.randn(60, 12, requires_grad=True), targets


def loss_of(
    objective: ReplaceMLM, head: torch.nn.Module, hidden: Tensor, embeddings: Tensor, targets: TargetTensors
) -> LossTerm:
    view = View(output=EncoderOutput(hidden, None), word_embeddings=embeddings, heads={})
    return objective.loss(head, LossInputs(view=view, targets=targets))


def test_targets_are_the_selected_tokens_or_all_of_them() -> None:
    instances = batch_of([20, 7, 33])
    examples = corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)
    few, every = SELECTED.targets(examples), EVERYWHERE.targets(examples)
    assert np.array_equal(few.positions, examples.selection.positions)
    assert np.array_equal(few.labels, instances.ids[few.positions])
    assert np.array_equal(every.positions, np.arange(60))
    assert np.array_equal(every.labels, instances.ids)


def test_replace_mlm_has_the_loss_of_masked_language_modeling() -> None:
    head, hidden, embeddings, targets = case(SELECTED)
    mlm = MaskedLanguageModeling()
    term = loss_of(SELECTED, head, hidden, embeddings, targets)
    same = mlm.loss(
        head,
        LossInputs(
            view=View(output=EncoderOutput(hidden, None), word_embeddings=embeddings, heads={}),
            targets=TargetTensors(positions=targets.positions, labels=targets.labels),
        ),
    )
    assert term.total.item() == same.total.item()
    assert term.correct.item() == same.correct.item()
    assert SELECTED.details({"replaced": 10.0}, 40) == {"replaced": 0.25}
    for count in (SELECTED.num_parameters, SELECTED.flops):
        assert count(SHAPE) == getattr(mlm, count.__name__)(SHAPE)


@pytest.mark.parametrize("block_elements", [60, 7 * 60, 1 << 20])
def test_all_tokens_mlm_mixes_copying_and_softmax(block_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ops,
        "summed_copying_cross_entropy",
        lambda *given, whole=ops.summed_copying_cross_entropy: whole(*given, block_elements=block_elements),
    )
    head, hidden, embeddings, targets = case(EVERYWHERE)
    with torch.no_grad():
        head.copying.weight.mul_(5)  # Some tokens are copied, others are not.
    term = loss_of(EVERYWHERE, head, hidden, embeddings, targets)
    at = hidden[targets.positions]
    inputs = targets.extra["inputs"]
    copying = torch.sigmoid(head.copying(at))
    shares = (1 - copying) * torch.softmax(head(at) @ embeddings.T + head.bias, dim=1)
    shares = shares.scatter_add(1, inputs[:, None], copying)
    assert torch.allclose(shares.sum(dim=1), torch.ones(40), atol=1e-6)
    expected = -shares.gather(1, targets.labels[:, None]).log().sum()
    assert term.total.item() == pytest.approx(expected.item(), rel=1e-5)
    is_right, is_replaced = shares.argmax(dim=1) == targets.labels, inputs != targets.labels
    assert 0 < int(is_right.sum()) < 40
    assert term.correct.item() == int(is_right.sum())
    tallies = {name: int(value) for name, value in term.tallies.items()}
    assert tallies == {"replaced": 10, "restored": int((is_right & is_replaced).sum())}
    leaves = (hidden, embeddings, *head.parameters())
    for mine, plain in zip(torch.autograd.grad(term.total, leaves), torch.autograd.grad(expected, leaves), strict=True):
        assert torch.allclose(mine, plain, atol=1e-4)


@pytest.mark.parametrize("odds", [-1e4, 1e4])
def test_extreme_odds_stay_finite(odds: float) -> None:
    """Without copying, All-Tokens MLM is cross entropy; where all is copied, only replaced tokens cost anything."""
    head, hidden, embeddings, targets = case(EVERYWHERE)
    with torch.no_grad():
        head.copying.weight.zero_()
        head.copying.bias.fill_(odds)
    term = loss_of(EVERYWHERE, head, hidden, embeddings, targets)
    logits = head(hidden[targets.positions]) @ embeddings.T + head.bias
    plain = cross_entropy(logits, targets.labels, reduction="none")
    replaced = targets.extra["inputs"] != targets.labels
    expected = plain.sum() if odds < 0 else (plain[replaced] + odds).sum()
    assert term.total.item() == pytest.approx(expected.item(), rel=1e-5)
    term.total.backward()
    assert torch.isfinite(head.copying.bias.grad).all()


def test_details_are_shares() -> None:
    assert EVERYWHERE.details({"replaced": 10.0, "restored": 4.0}, 40) == {"replaced": 0.25, "restored": 0.4}
    assert EVERYWHERE.details({"replaced": 0.0, "restored": 0.0}, 40) == {"replaced": 0.0}
    assert EVERYWHERE.num_parameters(SHAPE) == sum(each.numel() for each in EVERYWHERE.head(SHAPE).parameters())
    assert EVERYWHERE.flops(SHAPE) == SELECTED.flops(SHAPE) + 2 * 24
