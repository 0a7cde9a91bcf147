"""Dense layers in training on a CPU against PyTorch's, and the memory that a layer of the encoder saves."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from maskwright.core.tensors import PackedBatch
from maskwright.kernels import ops
from maskwright.kernels.setting import use_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from tests.kernels.gradients import assert_same_gradients

names = pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])


def batch_of(lengths: list[int], ids: Tensor) -> PackedBatch:
    return PackedBatch.of(ids.numpy(), np.zeros(len(ids)), np.array(lengths), dropout_key=3)


def test_batches_are_padded_to_few_sizes_by_sequences_and_positions_that_nothing_uses() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(hidden_size=16, num_heads=2, num_layers=2, intermediate_size=32, max_positions=7)
    encoder = Encoder(config, 9)
    lengths = [7] * 30 + [3]
    tokens = sum(lengths)
    batch = batch_of(lengths, torch.randint(9, (tokens,)))
    positions = torch.arange(0, tokens, 5)
    padded, padded_positions = ops.pad_to_few_sizes(batch, positions)
    assert padded.lengths.tolist() == [*lengths, *[1] * 11]
    assert padded_positions.tolist() == [*positions.tolist(), *[210] * 5]
    _, no_positions = ops.pad_to_few_sizes(batch, positions[:0])
    assert no_positions.shape == (0,)
    for output_positions in (None, positions):
        hidden = encoder.encode(batch, output_positions)
        with torch.no_grad():
            assert ops.pad_to_few_sizes(batch, positions) == (batch, positions)
            torch.testing.assert_close(encoder.encode(batch, output_positions), hidden)


def leaves_of(values: Tensor, *layers: nn.Linear) -> list[Tensor]:
    return [values, *(parameter for layer in layers for parameter in layer.parameters())]


@names
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_feed_forward_is_pytorchs(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers, hidden = (nn.Linear(512, 24), nn.Linear(24, 512)), torch.randn(9, 512, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        actual = ops.feed_forward(hidden, layers[0], name, layers[1])
        expected = layers[1](ops.activation(name, layers[0](hidden)))
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, leaves_of(hidden, *layers))


@pytest.mark.parametrize("width", [16, 528])
@pytest.mark.parametrize("half", [False, True])
def test_query_key_and_value_are_those_of_three_layers(width: int, half: bool) -> None:
    torch.manual_seed(0)
    layers, hidden = [nn.Linear(width, width) for _ in range(3)], torch.randn(5, width, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        actual = ops.linear_qkv(hidden, *layers)
        expected = [layer(hidden) for layer in layers]
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)
    tolerance = {"atol": 0.02, "rtol": 0.02} if half else {"atol": 1e-5, "rtol": 1e-5}
    assert_same_gradients(torch.stack(list(actual)), torch.stack(expected), leaves_of(hidden, *layers), **tolerance)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("half", [False, True])
def test_a_layer_saves_few_bytes_per_token_and_unit_of_width(name: str, half: bool) -> None:
    """In fp32: tokens 8, query, key and value 12, probabilities 8, context 4, sums 8, GELU's input 16, dropout 4."""
    length, width = 128, 768
    sizes = []
    for num_layers in (1, 2):
        config = EncoderConfig(num_layers=num_layers, hidden_activation=name, pooler=False)
        encoder = Encoder(config, 9)
        batch = batch_of([length], torch.zeros(length, dtype=torch.int64))
        saved: dict[int, Tensor] = {}

        def pack(tensor: Tensor, saved: dict[int, Tensor] = saved) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with (
            saved_tensors_hooks(pack, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=half),
            use_kernels(False),
        ):
            encoder(batch)
        # Not weights and their copies in bf16.
        sizes.append(sum(each.untyped_storage().nbytes() for each in saved.values() if length in each.shape))
    assert (sizes[1] - sizes[0]) / length / width == pytest.approx(36 if half else 60, abs=0.1)
