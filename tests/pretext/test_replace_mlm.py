"""Replace MLM and All-Tokens MLM: targets, losses and what is counted. The loss: tests/kernels."""

import numpy as np
import pytest
import torch
from pretext_samples import VOCABULARY, batch_of, rng_for
from torch import Tensor

from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, TargetTensors
from maskwright.core.types import HeadShape
from maskwright.pretext.masking import TokenMasking
from maskwright.pretext.objectives import MaskedLanguageModeling, ReplaceMLM
from maskwright.pretext.replacement import MaskRandomKeep
from maskwright.pretext.replacement.base import corrupt

SHAPE = HeadShape(hidden_size=24, embedding_size=12, vocab_size=60, hidden_activation="gelu", layer_norm_eps=1e-12)
SELECTED, EVERYWHERE = ReplaceMLM(), ReplaceMLM(loss_at="everywhere")


def inputs_of(labels: Tensor, seen: Tensor, embeddings: Tensor) -> LossInputs:
    """The second to last tokens are the targets."""
    hidden = torch.randn(len(labels), 24, generator=torch.Generator().manual_seed(1))
    encoded = EncodedBatch(ids=seen, output=EncoderOutput(hidden, None), word_embeddings=embeddings, heads={})
    positions = torch.arange(1, len(labels))
    return LossInputs(encoded=encoded, targets=TargetTensors(positions=positions, labels=labels[1:]))


def test_targets_are_the_selected_tokens_or_all_of_them() -> None:
    instances = batch_of([20, 7, 33])
    examples = corrupt(instances, TokenMasking(), MaskRandomKeep(), rng_for(instances), VOCABULARY)
    few, every = SELECTED.targets(examples), EVERYWHERE.targets(examples)
    assert np.array_equal(few.positions, examples.selection.positions)
    assert np.array_equal(few.labels, instances.ids[few.positions])
    assert np.array_equal(every.positions, np.arange(60))
    assert np.array_equal(every.labels, instances.ids)


def test_replace_mlm_is_masked_language_modeling_on_another_input() -> None:
    head, labels = SELECTED.head(SHAPE), torch.arange(9)
    inputs = inputs_of(labels, torch.tensor([8, 1, 2, 3, 4, 5, 0, 0, 0]), torch.randn(60, 12))
    term, same = SELECTED.loss(head, inputs), MaskedLanguageModeling().loss(head, inputs)
    assert (term.total.item(), term.correct.item()) == (same.total.item(), same.correct.item())
    assert {name: int(count) for name, count in term.tallies.items()} == {"replaced": 3}


@pytest.mark.parametrize("objective", [SELECTED, EVERYWHERE])
def test_the_parameters_of_the_head_are_counted(objective: ReplaceMLM) -> None:
    assert objective.num_parameters(SHAPE) == sum(each.numel() for each in objective.head(SHAPE).parameters())


def test_all_tokens_mlm_counts_what_is_restored() -> None:
    """Logits by hand: the softmax always predicts token 5; where D is small, that is the prediction, else the input."""
    head, labels = EVERYWHERE.head(SHAPE), torch.tensor([0, 5, 5, 7, 7])
    inputs = inputs_of(labels, torch.tensor([0, 9, 5, 9, 7]), torch.zeros(60, 12))
    with torch.no_grad():
        head.bias[5] = 10.0
        head.copying.weight.zero_()
        for log_odds, right, restored in ((-9.0, 2, 1), (9.0, 2, 0)):
            head.copying.bias.fill_(log_odds)
            term = EVERYWHERE.loss(head, inputs)
            assert term.correct.item() == right
            assert {name: int(count) for name, count in term.tallies.items()} == {"replaced": 2, "restored": restored}


def test_details_are_shares() -> None:
    assert EVERYWHERE.details({"replaced": 10.0, "restored": 4.0}, 40) == {"replaced": 0.25, "restored": 0.4}
    assert EVERYWHERE.details({"replaced": 0.0, "restored": 0.0}, 40) == {"replaced": 0.0}
    assert SELECTED.details({"replaced": 10.0}, 40) == {"replaced": 0.25}
