"""CUDA graphs and FlashAttention on a GPU, against eager passes and PyTorch."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from maskwright.core.tensors import PackedBatch
from maskwright.kernels import ops
from maskwright.kernels.cuda.graphs import Graphs
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from tests.kernels.padded_attention import padded_attention

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

DEVICE = torch.device("cuda", 0)
TOLERANCE = 0.02
MODERN = {
    **{"positions": "rotary", "attention_window": 8, "norm_placement": "pre", "first_attention_norm": False},
    **{"norm_bias": False, "dense_bias": False, "feed_forward": "gated"},
}


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=DEVICE)


def batch_of(lengths: list[int], key: int) -> PackedBatch:
    ids, sizes = np.random.default_rng(key).integers(50, size=sum(lengths)), np.array(lengths)
    return PackedBatch.of(ids, np.zeros(len(ids)), sizes, max_seqlen=64, dropout_key=key, device=DEVICE)


def inputs_of(tokens: int, width: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(tokens, width, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]


def assert_near(actual: Tensor, expected: Tensor, minimum: float = 0.0) -> None:
    difference = (actual.detach().double() - expected.detach().double()).norm()
    assert difference <= TOLERANCE * max(float(expected.detach().double().norm()), minimum)


def assert_attention_is_near(lengths: list[int], longest: int, width: int, window: int | None) -> None:
    """Compare results and gradients of two heads with PyTorch's."""
    inputs, sequences = inputs_of(sum(lengths), width), ops.Sequences(bounds_of(lengths), longest)
    actual = ops.attention(*inputs, sequences, num_heads=2, window=window)
    expected = padded_attention(*inputs, sequences, 2, None, window)
    assert_near(actual, expected)
    grad = torch.randn_like(expected)
    both = (torch.autograd.grad(each, inputs, grad) for each in (actual, expected))
    for one, other in zip(*both, strict=True):
        assert_near(one, other)


@pytest.mark.parametrize("changes", [{}, MODERN], ids=["bert", "modern"])
def test_replayed_graphs_compute_what_eager_passes_compute(changes: dict[str, Any]) -> None:
    """Two micro-batches of different sizes with dropout, and an evaluation between them."""
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "num_heads": 2, "num_layers": 2, "intermediate_size": 256, "pooler": False}
    config = EncoderConfig(**shape, **changes)
    encoder = Encoder(config, 50).to(DEVICE).train()
    graphs = Graphs(encoder)
    batches = [batch_of([8] * 200, 1), batch_of([64, 30, 1] * 50, 2)]
    weights = [torch.randn(batch.num_tokens, 128, device=DEVICE) for batch in batches]

    def computed(replay: bool) -> tuple[list[Tensor], dict[str, Tensor]]:
        encoder.zero_grad(set_to_none=True)
        results = []
        for batch, weight in zip(batches, weights, strict=True):
            with torch.autocast("cuda", torch.bfloat16):
                hidden = graphs(batch, None) if replay else encoder.encode(batch, None)
            results.append(hidden.detach().clone())
            (hidden.float() * weight).sum().backward()
            encoder.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                assert graphs(batch, None) is None
                encoder(batch)
            encoder.train()
        return results, {name: each.grad.clone() for name, each in encoder.named_parameters() if each.grad is not None}

    with torch.autocast("cuda", torch.bfloat16):
        assert graphs(batches[0], None) is None  # A first batch is computed without a graph.
    expected, expected_grads = computed(replay=False)
    largest = max(float(each.norm()) for each in expected_grads.values())
    for _ in range(2):  # Captured, then replayed.
        actual, grads = computed(replay=True)
        for one, other in zip(actual, expected, strict=True):
            assert_near(one, other)
        assert grads.keys() == expected_grads.keys()
        for name, grad in grads.items():
            assert_near(grad, expected_grads[name], minimum=1e-3 * largest)
    assert len(graphs._graphs) == 2


def test_a_frozen_encoder_is_computed_without_graphs_until_it_is_trained() -> None:
    config = EncoderConfig(hidden_size=128, num_heads=2, num_layers=1, intermediate_size=256, pooler=False)
    encoder = Encoder(config, 50).to(DEVICE).train().requires_grad_(False)
    graphs, batch = Graphs(encoder), batch_of([8] * 200, 1)
    with torch.autocast("cuda", torch.bfloat16):
        assert [graphs(batch, None) for _ in range(3)] == [None] * 3
        encoder.requires_grad_(True)
        assert [graphs(batch, None) is None for _ in range(2)] == [True, False]


def test_flash_attention_drops_by_the_key_and_leaves_the_generator_alone() -> None:
    lengths, longest = [129, 5], 129
    inputs, state = inputs_of(sum(lengths), 128), torch.cuda.get_rng_state(DEVICE)

    def computed(key: int, call: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        result = ops.attention(
            *inputs,
            ops.Sequences(bounds_of(lengths), longest),
            num_heads=2,
            dropout=ops.DropoutKey(key, DEVICE).mask(call, 0.1),
        )
        return result, torch.autograd.grad(result, inputs, torch.ones_like(result))

    first, first_grads = computed(7, 0)
    second, second_grads = computed(7, 0)
    assert torch.equal(first, second)
    for one, other in zip(first_grads, second_grads, strict=True):
        assert_near(one, other)  # Sums of the backward pass are in no fixed order.
    assert not torch.equal(first, computed(8, 0)[0])
    assert not torch.equal(first, computed(7, 1)[0])
    assert torch.equal(torch.cuda.get_rng_state(DEVICE), state)


@pytest.mark.parametrize("window", [1, 5, 64])
def test_windows_of_long_and_short_sequences_are_those_of_pytorch(window: int) -> None:
    for lengths in ([300, 1, 70], [90, 1, 70]):
        assert_attention_is_near(lengths, max(lengths), 128, window)


@pytest.mark.parametrize("head_size", [24, 12, 256])
def test_head_sizes_without_a_triton_kernel_are_computed(head_size: int) -> None:
    assert_attention_is_near([33, 1, 40], 64, 2 * head_size, window=None)
