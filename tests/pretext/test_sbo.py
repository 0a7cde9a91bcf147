"""Span boundary objective: targets, head and loss; the paper's example is in `test_worked_examples.py`."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretext_samples import batch_of, rng_for
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear

from maskwright.core.tensors import EncodedBatch, EncoderOutput, LossInputs, TargetTensors
from maskwright.core.types import Examples, HeadShape, Targets
from maskwright.pretext.masking import Masking, SpanMasking, WholeWordMasking
from maskwright.pretext.objectives import SpanBoundaryObjective

SHAPE = HeadShape(hidden_size=24, embedding_size=12, vocab_size=60, hidden_activation="gelu", layer_norm_eps=1e-12)


def rows_of(targets: Targets) -> list[tuple[int, int, int, int]]:
    """(left, position, right, position) of every target."""
    columns = targets.anchors["left"], targets.positions, targets.anchors["right"], targets.extra["position"]
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=100)
@given(
    st.sampled_from([SpanMasking(rate=0.3), WholeWordMasking(rate=0.3), WholeWordMasking(rate=0.4, candidates="all")]),
    st.lists(st.integers(3, 80), min_size=1, max_size=8),
    st.integers(0, 1000),
)
def test_targets_are_those_of_a_walk_over_the_tokens(masking: Masking, lengths: list[int], seed: int) -> None:
    instances = batch_of(lengths, seed, 0.7)
    selection = masking.select(instances, rng_for(instances, seed))
    masked = np.zeros(len(instances.ids), dtype=bool)
    masked[selection.positions] = True
    expected, token = [], 0
    while token < len(masked):
        end = token
        while end < len(masked) and masked[end] and not instances.special[end]:
            end += 1
        if end > token and not instances.special[token - 1] and not instances.special[end]:
            expected += [(token - 1, token + k, end, k + 1) for k in range(min(5, end - token))]
        token = max(end, token + 1)
    targets = SpanBoundaryObjective(max_tokens=5).targets(
        Examples(instances=instances, selection=selection, corrupted=instances.ids)
    )
    assert rows_of(targets) == expected
    assert not masked[targets.anchors["left"]].any()
    assert not masked[targets.anchors["right"]].any()
    sequences = instances.sequence_ids
    for anchor in targets.anchors.values():
        assert np.array_equal(sequences[anchor], sequences[targets.positions])
    assert np.array_equal(targets.labels, instances.ids[targets.positions])


def test_the_loss_equals_that_of_the_formula_written_out() -> None:
    torch.manual_seed(0)
    objective = SpanBoundaryObjective(max_tokens=4)
    head = objective.head(SHAPE)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    hidden, embeddings = torch.randn(30, 24, requires_grad=True), torch.randn(60, 12, requires_grad=True)
    left, right, position = torch.tensor([3, 3, 9]), torch.tensor([7, 7, 11]), torch.tensor([1, 3, 4])
    labels = torch.tensor([5, 59, 0])
    targets = TargetTensors(
        positions=torch.tensor([4, 6, 10]),
        labels=labels,
        extra={"position": position},
        anchors={"left": left, "right": right},
    )
    encoded = EncodedBatch(
        ids=torch.zeros(0, dtype=torch.int64), output=EncoderOutput(hidden, None), word_embeddings=embeddings, heads={}
    )
    term = objective.loss(head, LossInputs(encoded=encoded, targets=targets))

    logits = []
    for target in range(3):
        joined = torch.cat(
            [hidden[left[target]], hidden[right[target]], head.place_embeddings.weight[position[target] - 1]]
        )
        inner = gelu(linear(joined, head.dense_in.weight, head.dense_in.bias))
        inner = layer_norm(inner, (24,), head.norm_in.weight, head.norm_in.bias, 1e-12)
        outer = gelu(linear(inner, head.dense_out.weight, head.dense_out.bias))
        outer = layer_norm(outer, (12,), head.norm_out.weight, head.norm_out.bias, 1e-12)
        logits.append(embeddings @ outer + head.bias)
    scores = torch.stack(logits)
    expected = cross_entropy(scores, labels, reduction="sum")
    assert term.total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert term.correct.item() == int((scores.argmax(dim=1) == labels).sum())
    leaves = (hidden, embeddings, *head.parameters())
    for grad, other in zip(torch.autograd.grad(term.total, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(grad, other, atol=1e-5, rtol=1e-5)
    # The masked tokens themselves are not looked at.
    (gradient,) = torch.autograd.grad(objective.loss(head, LossInputs(encoded=encoded, targets=targets)).total, hidden)
    assert sorted(gradient.abs().sum(dim=1).nonzero().flatten().tolist()) == [3, 7, 9, 11]
