"""Soft targets and the cosine to the teacher: targets, losses and gradients against plain torch."""

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for
from torch import Tensor, nn

from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, PackedBatch, TargetTensors
from maskwright.core.types import Examples, HeadShape
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import Cosine, MaskedLanguageModeling, SentenceVectors, SoftTargets
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.pretext.replacement.base import corrupt

ENTRIES = 37


def shape(hidden: int, width: int) -> HeadShape:
    return HeadShape(
        hidden_size=hidden, embedding_size=width, vocab_size=ENTRIES, hidden_activation="gelu", layer_norm_eps=1e-12
    )


def plain_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """As the original computes it: a mean over places, of scores held whole (distiller.py)."""
    criterion = nn.KLDivLoss(reduction="batchmean")
    return criterion((student / temperature).log_softmax(-1), (teacher / temperature).softmax(-1)) * temperature**2


def masked(lengths: tuple[int, ...] = (12, 30)) -> Examples:
    instances = batch_of(lengths)
    return corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)


def test_the_teacher_predicts_at_every_real_token_or_at_the_selected_ones() -> None:
    examples = masked()
    everywhere = SoftTargets().targets(examples)
    assert everywhere.positions.tolist() == list(range(42))
    assert np.array_equal(everywhere.labels, examples.instances.ids)
    selected = SoftTargets(loss_at="selected").targets(examples)
    assert np.array_equal(selected.positions, examples.selection.positions)
    assert Cosine().targets(examples).positions.tolist() == list(range(42))
    assert SoftTargets().predictions_per_token(0.15, 100.0) == Cosine().predictions_per_token(0.15, 100.0) == 1
    assert SoftTargets(loss_at="selected").predictions_per_token(0.15, 100.0) == 0.15


def encoded_batch(hidden: int, tokens: int, seed: int) -> EncodedBatch:
    torch.manual_seed(seed)
    head = MaskedLanguageModelingHead(shape(hidden, hidden)).double()
    nn.init.normal_(head.bias)
    return EncodedBatch(
        ids=torch.zeros(tokens, dtype=torch.int64),
        output=EncoderOutput(torch.randn(tokens, hidden, dtype=torch.float64, requires_grad=True), None),
        word_embeddings=torch.randn(ENTRIES, hidden, dtype=torch.float64, requires_grad=True),
        heads={"mlm": head},
    )


def inputs_of(indices: list[int], student: EncodedBatch, teacher: EncodedBatch) -> LossInputs:
    positions = torch.tensor(indices, dtype=torch.int64)
    return LossInputs(
        encoded=student, targets=TargetTensors(positions=positions, labels=torch.zeros_like(positions)), teacher=teacher
    )


def test_soft_targets_equal_the_plain_formula_on_the_masked_token_heads() -> None:
    student, teacher = encoded_batch(16, 20, 0), encoded_batch(24, 20, 1)
    objective, positions = SoftTargets(), [0, 3, 4, 11, 19]
    term = objective.loss(objective.head(shape(16, 16)), inputs_of(positions, student, teacher))
    mlm = MaskedLanguageModeling()
    scores, wanted = (
        mlm.logits(each.heads["mlm"], each.output.hidden[positions], each.word_embeddings)
        for each in (student, teacher)
    )
    expected = plain_divergence(scores, wanted.detach(), 2.0)
    assert term.total.item() / 5 == pytest.approx(expected.item(), abs=1e-6)
    assert int(term.correct) == int((scores.argmax(1) == wanted.argmax(1)).sum())
    leaves = (student.output.hidden, student.word_embeddings, *student.heads["mlm"].parameters())
    ours, plain = (torch.autograd.grad(total, leaves) for total in (term.total / 5, expected))
    for actual, other in zip(ours, plain, strict=True):
        assert (actual - other).abs().max() < 1e-6


def test_cosine_equals_torch_s_cosine_embedding_loss() -> None:
    student, teacher = encoded_batch(16, 20, 2), encoded_batch(16, 20, 3)
    positions = [0, 5, 7, 8, 19]
    term = Cosine().loss(nn.Identity(), inputs_of(positions, student, teacher))
    student_states, theirs = student.output.hidden[positions], teacher.output.hidden[positions].detach()
    expected = nn.CosineEmbeddingLoss(reduction="mean")(student_states, theirs, torch.ones(5, dtype=torch.float64))
    assert term.total.item() / 5 == pytest.approx(expected.item(), abs=1e-6)
    assert term.correct is None
    shares = Cosine().details({name: float(value) for name, value in term.tallies.items()}, 5)
    assert shares == {"mean": pytest.approx(1 - expected.item(), abs=1e-6)}
    ours, plain = (torch.autograd.grad(total, student.output.hidden)[0] for total in (term.total / 5, expected))
    assert (ours - plain).abs().max() < 1e-6


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_sentence_vectors_have_the_same_tallies_for_any_number_of_sequences(count: int) -> None:
    # Ranks add up their tallies, whose sequences differ in number.
    ids = np.zeros(4 * count, dtype=np.int64)
    sequences = torch.arange(count)
    encoded = []
    for seed in range(2):
        encoded.append(encoded_batch(16, len(ids), seed))
        encoded[-1].heads["sentence_vectors"] = nn.Identity()
    inputs = LossInputs(
        encoded=encoded[0],
        targets=TargetTensors(positions=sequences, labels=sequences),
        teacher=encoded[1],
        batch=PackedBatch.of(ids, ids, np.full(count, 4)),
    )
    objective = SentenceVectors(pooling="mean")
    tallies = {name: float(value) for name, value in objective.loss(nn.Identity(), inputs).tallies.items()}
    assert tallies.keys() == {"cosine", "spearman", "compared"}
    assert tallies["compared"] == (count if count >= 3 else 0)
    assert ("spearman" in objective.details(tallies, count)) == (count >= 3)
