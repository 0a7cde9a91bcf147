"""Soft targets and the cosine to the teacher: targets, losses and gradients against plain torch."""

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for
from torch import Tensor, nn
from torch.nn.functional import linear

from maskwright.core.tensors import EncoderOutput, LossInputs, TargetTensors, View
from maskwright.core.types import Examples, HeadShape
from maskwright.pretext.corrupt import corrupt
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import Cosine, MaskedLanguageModeling, SoftTargets
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.pretext.objectives.soft_targets import Scorer, summed_divergence
from maskwright.pretext.replacement import MaskRandomKeep

ENTRIES = 37


def shape(hidden: int, width: int) -> HeadShape:
    return HeadShape(
        hidden_size=hidden, embedding_size=width, vocab_size=ENTRIES, hidden_activation="gelu", layer_norm_eps=1e-12
    )


def scorer(places: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> Scorer:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((places, width), (ENTRIES, width), (ENTRIES,))
    return Scorer(*(torch.randn(*each, generator=generator, dtype=dtype).requires_grad_() for each in shapes))


def plain_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """As the original computes it: a mean over places, of scores held whole (distiller.py)."""
    criterion = nn.KLDivLoss(reduction="batchmean")
    return criterion((student / temperature).log_softmax(-1), (teacher / temperature).softmax(-1)) * temperature**2


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
@pytest.mark.parametrize("block_elements", [1, 2 * ENTRIES * 4, 1 << 20])
def test_divergence_in_blocks_equals_plain_torch_forwards_and_backwards(
    block_elements: int, temperature: float
) -> None:
    student, teacher = scorer(11, 8, 1), scorer(11, 5, 2)  # A teacher may be of another width.
    total, agreed = summed_divergence(student, teacher, temperature, block_elements)
    scores, wanted = linear(*student), linear(*teacher).detach()
    expected = plain_divergence(scores, wanted, temperature)
    assert total.item() / 11 == pytest.approx(expected.item(), abs=1e-12)
    assert int(agreed) == int((scores.argmax(1) == wanted.argmax(1)).sum())
    ours = torch.autograd.grad(3 * total / 11, list(student))
    plain = torch.autograd.grad(3 * expected, list(student))
    for mine, other in zip(ours, plain, strict=True):
        assert torch.allclose(mine, other, rtol=1e-10, atol=1e-12)


def test_divergence_under_autocast_multiplies_in_bfloat16_and_sums_in_float32() -> None:
    student, teacher = scorer(64, 16, 8, torch.float32), scorer(64, 16, 9, torch.float32)
    exact, _ = summed_divergence(student, teacher, 2.0)
    fine = torch.autograd.grad(exact, list(student))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = summed_divergence(student, teacher, 2.0, block_elements=1000)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=0.02)
    for rough, precise in zip(torch.autograd.grad(total, list(student)), fine, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - precise).norm() < 0.05 * precise.norm()


def test_extreme_scores_stay_finite() -> None:
    student, teacher = (
        Scorer(features, torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.zeros(2))
        for features in (torch.tensor([[1000.0]], requires_grad=True), torch.tensor([[-1000.0]]))
    )
    total, agreed = summed_divergence(student, teacher, 2.0)
    assert total.item() == pytest.approx(4 * 1000)
    assert int(agreed) == 0
    assert torch.autograd.grad(total, student.features)[0].isfinite().all()


def masked(lengths: tuple[int, ...] = (12, 30)) -> Examples:
    instances = batch_of(lengths)
    return corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)


def test_the_teacher_is_asked_at_every_real_token_or_at_the_selected_ones() -> None:
    examples = masked()
    everywhere = SoftTargets().targets(examples)
    assert everywhere.positions.tolist() == list(range(42))
    assert np.array_equal(everywhere.labels, examples.instances.ids)
    selected = SoftTargets(loss_at="selected").targets(examples)
    assert np.array_equal(selected.positions, examples.selection.positions)
    assert Cosine().targets(examples).positions.tolist() == list(range(42))
    assert SoftTargets().predictions_per_token(0.15, 100.0) == Cosine().predictions_per_token(0.15, 100.0) == 1
    assert SoftTargets(loss_at="selected").predictions_per_token(0.15, 100.0) == 0.15


def view(hidden: int, tokens: int, seed: int) -> View:
    torch.manual_seed(seed)
    head = MaskedLanguageModelingHead(shape(hidden, hidden)).double()
    nn.init.normal_(head.bias)
    return View(
        output=EncoderOutput(torch.randn(tokens, hidden, dtype=torch.float64, requires_grad=True), None),
        word_embeddings=torch.randn(ENTRIES, hidden, dtype=torch.float64, requires_grad=True),
        heads={"mlm": head},
    )


def inputs_of(places: list[int], student: View, teacher: View) -> LossInputs:
    positions = torch.tensor(places, dtype=torch.int64)
    return LossInputs(
        view=student, targets=TargetTensors(positions=positions, labels=torch.zeros_like(positions)), teacher=teacher
    )


def test_soft_targets_equal_the_plain_formula_on_the_masked_token_heads() -> None:
    student, teacher = view(16, 20, 0), view(24, 20, 1)
    objective, places = SoftTargets(), [0, 3, 4, 11, 19]
    term = objective.loss(objective.head(shape(16, 16)), inputs_of(places, student, teacher))
    mlm = MaskedLanguageModeling()
    scores, wanted = (
        mlm.logits(each.heads["mlm"], each.output.hidden[places], each.word_embeddings) for each in (student, teacher)
    )
    expected = plain_divergence(scores, wanted.detach(), 2.0)
    assert term.total.item() / 5 == pytest.approx(expected.item(), abs=1e-6)
    assert int(term.correct) == int((scores.argmax(1) == wanted.argmax(1)).sum())
    leaves = (student.output.hidden, student.word_embeddings, *student.heads["mlm"].parameters())
    ours, plain = (torch.autograd.grad(total, leaves) for total in (term.total / 5, expected))
    for mine, other in zip(ours, plain, strict=True):
        assert (mine - other).abs().max() < 1e-6


def test_cosine_equals_torch_s_cosine_embedding_loss() -> None:
    student, teacher = view(16, 20, 2), view(16, 20, 3)
    places = [0, 5, 7, 8, 19]
    term = Cosine().loss(nn.Identity(), inputs_of(places, student, teacher))
    mine, theirs = student.output.hidden[places], teacher.output.hidden[places].detach()
    expected = nn.CosineEmbeddingLoss(reduction="mean")(mine, theirs, torch.ones(5, dtype=torch.float64))
    assert term.total.item() / 5 == pytest.approx(expected.item(), abs=1e-6)
    assert term.correct is None
    shares = Cosine().details({name: float(value) for name, value in term.tallies.items()}, 5)
    assert shares == {"mean": pytest.approx(1 - expected.item(), abs=1e-6)}
    ours, plain = (torch.autograd.grad(total, student.output.hidden)[0] for total in (term.total / 5, expected))
    assert (ours - plain).abs().max() < 1e-6
