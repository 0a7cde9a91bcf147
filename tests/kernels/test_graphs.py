"""Parts of CUDA graphs that need no GPU: sizes, the memory that graphs read, gradients, detached parameters."""

import contextlib
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from maskwright.core.tensors import PackedBatch
from maskwright.kernels.cuda import graphs as module
from maskwright.kernels.cuda.graphs import Graphs, Size, _Graph, capture, detached_parameters, fill, workspace
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder

CPU = torch.device("cpu")
LONGEST = 16
BATCHES = st.lists(st.integers(1, LONGEST), min_size=1, max_size=100)


def batch_of(lengths: list[int], longest: int = LONGEST, key: int | None = 5) -> PackedBatch:
    ids, segments = np.random.default_rng(0).integers(1, 99, (2, sum(lengths)))
    return PackedBatch.of(ids, segments, np.array(lengths), max_seqlen=longest, dropout_key=key)


def positions_of(batch: PackedBatch, share: float | None) -> Tensor | None:
    if share is None:
        return None
    return torch.linspace(0, batch.num_tokens - 1, max(1, int(share * batch.num_tokens))).long().unique()


@given(lengths=BATCHES, times=st.integers(1, 60), share=st.sampled_from([None, 0.1, 0.5, 0.75]), drops=st.booleans())
def test_a_batch_fits_its_own_size_closely(lengths: list[int], times: int, share: float | None, drops: bool) -> None:
    batch = batch_of(lengths * times, key=1 if drops else None)
    size = Size.of(batch, positions_of(batch, share))
    assert size.fits(batch, positions_of(batch, share))
    assert batch.num_tokens <= size.tokens <= max(batch.num_tokens + 16, 1.04 * batch.num_tokens)


def test_other_sizes_dropout_and_output_positions_do_not_fit() -> None:
    batch = batch_of([8] * 400)
    positions = positions_of(batch, 0.15)
    size = Size.of(batch, positions)
    assert size.fits(batch_of([8] * 395), positions)
    assert not size.fits(batch_of([8] * 400, key=None), positions)
    assert not size.fits(batch, None)
    assert not size.fits(batch, torch.arange(3 * len(positions)))
    assert not size.fits(batch, positions[:8])
    assert not size.fits(batch_of([2] * 1600), positions)
    assert not size.fits(batch_of([8] * 400, longest=32), positions)
    assert not size.fits(batch_of([8] * 200), positions)


@given(lengths=BATCHES, share=st.sampled_from([None, 0.15, 0.6]))
def test_a_workspace_holds_a_batch_and_padding_whatever_was_there(lengths: list[int], share: float | None) -> None:
    larger = batch_of([7] * (LONGEST * 100 // 7 + 1), key=9)
    batch = batch_of(lengths)
    larger_positions = None if share is None else positions_of(larger, 1.0)
    size, positions = Size.of(larger, larger_positions), positions_of(batch, share)
    to, to_positions = workspace(size, CPU)
    fill(to, to_positions, larger, larger_positions)
    fill(to, to_positions, batch, positions)
    for name in ("ids", "position_ids", "segment_ids"):
        assert torch.equal(getattr(to, name)[: batch.num_tokens], getattr(batch, name))
    sequences, padding = batch.num_sequences, to.lengths[batch.num_sequences :]
    assert torch.equal(to.cu_seqlens[: sequences + 1], batch.cu_seqlens)
    assert int(to.cu_seqlens[-1]) == size.tokens
    assert 0 <= int(padding.min()) <= int(padding.max()) <= LONGEST
    assert int(padding.sum()) == size.tokens - batch.num_tokens
    assert isinstance(to.dropout_key, Tensor)
    assert int(to.dropout_key) == 5
    if positions is not None:
        assert torch.equal(to_positions[: len(positions)], positions)
        assert not to_positions[len(positions) :].any()


def shared_layers() -> nn.Sequential:
    """Two layers share a weight, one weight has no gradient, one layer has no bias."""
    first, second, third = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 2)
    second.weight = first.weight
    third.weight.requires_grad_(False)
    return nn.Sequential(first, second, third)


def test_detached_parameters_share_memory_and_shared_parameters_share_one() -> None:
    net = shared_layers()
    parameters = dict(net.named_parameters(remove_duplicate=False))
    with contextlib.suppress(KeyError), detached_parameters(net) as others:
        inside = dict(net.named_parameters(remove_duplicate=False))
        assert inside["0.weight"] is inside["1.weight"]
        for name, parameter in parameters.items():
            assert inside[name] is not parameter
            assert inside[name].data_ptr() == parameter.data_ptr()
        assert [id(each) for each in others] == [id(parameters[name]) for name in ("0.weight", "0.bias", "2.bias")]
        grads = torch.autograd.grad(net(torch.ones(3, 4)).sum(), list(others.values()))
        raise KeyError
    assert all(each is parameters[name] for name, each in net.named_parameters(remove_duplicate=False))
    net(torch.ones(3, 4)).sum().backward()
    for parameter, each in zip(others, grads, strict=True):
        torch.testing.assert_close(parameter.grad, each)


class Gradients:
    """A backward pass whose gradients lie in fixed memory."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.gradients = [(each, torch.zeros_like(each)) for each in parameters]

    def replay(self, graphs: Graphs, value: float) -> None:
        graphs._copy_aliased_gradients()
        for _, gradient in self.gradients:
            gradient.fill_(value)
        graphs.add_gradients(cast(_Graph, self))


@pytest.mark.parametrize("count", [1, 2])
def test_gradients_of_micro_batches_add_up_in_one_graph_and_in_several(count: int) -> None:
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2))]
    graphs, passes = Graphs(nn.Linear(1, 1)), [Gradients(parameters) for _ in range(count)]
    for step in range(3):
        total = 0.0
        for number, value in enumerate((1.0, 10.0, 100.0, 1000.0)):
            passes[number % count].replay(graphs, value + step)
            total += value + step
            assert [set(each.grad.flatten().tolist()) for each in parameters if each.grad is not None] == [{total}] * 2
        for parameter in parameters:
            parameter.grad = None


def test_gradients_of_other_parts_of_the_model_are_kept() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    graphs, backward = Graphs(nn.Linear(1, 1)), Gradients([parameter])
    backward.replay(graphs, 1.0)
    parameter.grad += 0.5
    backward.replay(graphs, 2.0)
    graphs.clear()
    assert parameter.grad.tolist() == [3.5] * 3


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    monkeypatch.setattr(module, "_is_supported", lambda encoder, batch: True)
    return Graphs(nn.Linear(2, 2))


def test_graphs_are_made_from_the_second_batch_on_and_shared_by_near_sizes(graphs: Graphs) -> None:
    batch = batch_of([8] * 400)
    assert graphs._size_for(batch, None) is None
    size = graphs._size_for(batch, None)
    assert 1.05 * batch.num_tokens <= size.tokens <= 1.15 * batch.num_tokens
    graphs._graphs[size] = None
    assert [graphs._size_for(batch_of([8] * count), None) for count in (400, 425, 300)] == [size] * 3
    close = Size.of(batch_of([8] * 300), None)
    assert [graphs._size_for(batch_of([8] * 300), None) for _ in range(24)] == [size] * 23 + [close]


def test_the_seventeenth_size_replaces_the_graphs_of_smaller_steps(graphs, monkeypatch):
    graphs._graphs = {Size.of(batch_of([8] * count), None): None for count in range(100, 260, 10)}
    left, batch = [], batch_of([8] * 300)

    def capture_size(*_: object) -> None:
        left.append(len(graphs._graphs))
        raise RuntimeError("no GPU")

    monkeypatch.setattr(graphs, "_captured", capture_size)
    assert len(graphs._graphs) == 16
    assert graphs(batch, None) is None
    with pytest.raises(RuntimeError, match="no GPU"):
        graphs(batch, None)
    assert left == [0]


@pytest.mark.parametrize(("training", "kept"), [(True, 0), (False, 1)])
def test_graphs_are_dropped_in_a_phase_that_has_none_but_not_in_evaluation(monkeypatch, training, kept):
    monkeypatch.setattr(module, "_is_supported", lambda encoder, batch: False)
    graphs = Graphs(nn.Linear(2, 2).train(training))
    graphs._graphs = {Size.of(batch_of([8] * 300), None): None}
    assert graphs(batch_of([8] * 300, longest=512), None) is None
    assert len(graphs._graphs) == kept


def test_without_memory_for_a_graph_no_more_are_made(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        try:
            raise RuntimeError("CUDA out of memory")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(graphs, "_captured", fail)
    assert [graphs(batch_of([8] * 300), None) for _ in range(3)] == [None] * 3
    assert graphs._is_full


@pytest.mark.parametrize(
    ("longest", "head_size", "expected"), [(128, 64, True), (129, 64, False), (64, 24, False), (64, 16, True)]
)
def test_graphs_contain_no_flash_attention(monkeypatch, longest, head_size, expected):
    monkeypatch.setattr(module, "has_kernels", lambda device: True)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    encoder = Encoder(EncoderConfig(hidden_size=2 * head_size, num_heads=2, num_layers=1, intermediate_size=8), 9)
    assert module._is_supported(encoder, batch_of([8], longest)) == expected
    encoder.requires_grad_(False)
    assert not module._is_supported(encoder, batch_of([8], longest)), "it has no backward pass to capture"


def test_an_encoder_on_a_cpu_is_not_captured() -> None:
    encoder = nn.Linear(2, 2)
    assert capture(encoder) is encoder
