"""Captured passes of an encoder against its own, with an emulation of CUDA graphs on a CPU.

An emulated graph remembers the operators that ran while it was captured. A replay runs them again on the same tensors
and overwrites their results, so whatever the host computed during the capture stays as it was, as on a GPU.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from maskwright.core.tensors import PackedBatch
from maskwright.kernels import ops
from maskwright.kernels.cuda import graphs as module
from maskwright.kernels.cuda.attention import mask_stride
from maskwright.kernels.cuda.graphs import Graphs
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize

LONGEST, VOCABULARY = 16, 99

# Autocast for CUDA does nothing here, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:CUDA is not available")


def tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


class Recording(TorchDispatchMode):
    """Remembers operators."""

    def __init__(self, graph: "Graph") -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; none may wait for the device."""
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        result = func(*args, **(kwargs or {}))
        self.graph.calls.append((func, args, kwargs or {}, result))
        return result


class Graph:
    """In place of `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def replay(self) -> None:
        """Run the operators again."""
        with torch.no_grad():
            for func, args, kwargs, result in self.calls:
                inputs = {each.untyped_storage().data_ptr() for each in tensors((args, kwargs))}
                for static, actual in zip(tensors(result), tensors(func(*args, **kwargs)), strict=True):
                    if static.untyped_storage().data_ptr() not in inputs:  # Else it is a view, or was changed in place.
                        static.copy_(actual)


class Stream:
    """In place of `torch.cuda.Stream`; the class remembers the current one."""

    current: "Stream"

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device

    def wait_stream(self, other: "Stream") -> None:
        """Nothing runs beside anything here."""

    @classmethod
    @contextlib.contextmanager
    def use(cls, stream: "Stream") -> Iterator[None]:
        """In place of `torch.cuda.stream`."""
        before, cls.current = cls.current, stream
        try:
            yield
        finally:
            cls.current = before


@contextlib.contextmanager
def capture(graph: Graph, pool: Any, stream: Stream, *, capture_error_mode: str) -> Iterator[None]:
    """In place of `torch.cuda.graph`, which does not restore the stream where `capture_end` raises."""
    assert stream.device == torch.device("cpu")
    before, Stream.current = Stream.current, stream
    with Recording(graph):
        yield
    Stream.current = before


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: ops.Sequences,
    *,
    num_heads: int,
    dropout: Any = None,
    window: int | None = None,
) -> Tensor:
    """Compute what the Triton kernels compute, their dropout too, without asking for the lengths."""
    assert window is None
    bounds, positions, stride = sequences.cu_seqlens.long(), torch.arange(len(query)), mask_stride(sequences.max_seqlen)
    sequence = torch.searchsorted(bounds, positions, right=True) - 1
    heads = [each.view(len(each), num_heads, -1).transpose(0, 1) for each in (query, key, value)]
    scores = heads[0] @ heads[1].transpose(1, 2) / heads[0].shape[2] ** 0.5
    shares = scores.masked_fill(sequence[:, None] != sequence, float("-inf")).softmax(-1)
    if dropout is not None:
        factors = dropout.factors((len(sequences) * num_heads * stride**2,))
        inside = positions - bounds[sequence]
        first = (sequence[:, None] * num_heads + torch.arange(num_heads)[:, None, None]) * stride**2
        shares = shares * factors[first + inside[:, None] * stride + inside]
    return (shares @ heads[2]).transpose(0, 1).flatten(1)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()
    monkeypatch.setattr(Stream, "current", stream, raising=False)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream.current)
    monkeypatch.setattr(torch.cuda, "stream", Stream.use)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(module, "_is_supported", lambda encoder, batch: True)
    monkeypatch.setattr(ops, "attention", attention)
    monkeypatch.setattr(ops, "pad_to_few_sizes", lambda batch, positions: (batch, positions))
    return stream


def encoder_with(dropout: float) -> Encoder:
    config = EncoderConfig(
        hidden_size=32,
        num_heads=2,
        num_layers=2,
        intermediate_size=48,
        max_positions=LONGEST,
        hidden_dropout=dropout,
        attention_dropout=dropout,
    )
    encoder = Encoder(config, VOCABULARY).train()
    initialize(encoder, config, 0)
    return encoder


def batch_of(lengths: list[int], key: int | None) -> PackedBatch:
    draws, tokens = np.random.default_rng(sum(lengths)), sum(lengths)
    ids, segments = draws.integers(VOCABULARY, size=tokens), draws.integers(2, size=tokens)
    return PackedBatch.of(ids, segments, np.array(lengths), max_seqlen=LONGEST, dropout_key=key)


@pytest.mark.parametrize("with_positions", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_captured_passes_compute_later_batches_too(emulated: Stream, dropout: float, with_positions: bool) -> None:
    encoder = encoder_with(dropout)
    graphs, captured = Graphs(encoder), 0
    for number, lengths in enumerate([[8] * 20, [8] * 20, [16, 3, 9] * 6, [5] * 31, [16] * 10]):
        batch = batch_of(lengths, 1000 + number if dropout else None)
        positions = torch.cat([batch.first_tokens, batch.first_tokens + 2]).sort().values if with_positions else None
        expected = encoder.encode(batch, positions)
        grad = torch.linspace(-1, 1, expected.numel()).view_as(expected)
        expected_grads = torch.autograd.grad(expected, list(encoder.parameters()), grad, allow_unused=True)
        actual = graphs(batch, positions)
        if actual is None:
            continue
        captured += 1
        torch.testing.assert_close(actual, expected)
        torch.autograd.backward(actual, grad)
        for parameter, expected_grad in zip(encoder.parameters(), expected_grads, strict=True):
            torch.testing.assert_close(parameter.grad, expected_grad, rtol=1e-4, atol=1e-4)
            # The optimizer needs the layout of the parameter.
            assert parameter.grad is None or parameter.grad.stride() == parameter.stride()
            parameter.grad = None
    assert captured == 4
    assert len(graphs._graphs) < captured
    assert Stream.current is emulated


def test_a_failed_capture_leaves_the_stream_that_was_current(emulated: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, calls = encoder_with(0.0), itertools.count()
    encode = encoder.encode

    def fail_in_capture(batch: PackedBatch, positions: Tensor | None) -> Tensor:
        if next(calls) == module._WARM_UPS:
            assert Stream.current is not emulated
            raise RuntimeError("operation not permitted when stream is capturing")
        return encode(batch, positions)

    monkeypatch.setattr(encoder, "encode", fail_in_capture)
    graphs, batch = Graphs(encoder), batch_of([8] * 20, None)
    assert graphs(batch, None) is None
    with pytest.raises(RuntimeError, match="not permitted"):
        graphs(batch, None)
    assert Stream.current is emulated
