"""Sublayers, embeddings and a whole encoder by kernels, in Triton's interpreter, against plain operations in fp32.

Values lie in bfloat16, whose rounding is 1 part in 256: results may be apart by about that, sums over many less.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from flat_batches import SMALL, encoder, packed, without_filler
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.core.tensors import FlatBatch, activation
from maskwright.kernels.attention import plan_attention
from maskwright.kernels.cuda import launches
from maskwright.kernels.cuda.embeddings import embedded
from maskwright.kernels.cuda.launches import Closing
from maskwright.kernels.cuda.rounded import rounded
from maskwright.kernels.cuda.runs import GpuRuns, runs_of
from maskwright.kernels.cuda.sublayers import attention_sublayer
from maskwright.kernels.dropout import DropoutKey, dropout, dropout_factors
from maskwright.kernels.setting import use_native_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.embeddings import sum_embeddings
from maskwright.model.encoder import Encoder

pytest.importorskip("triton", minversion="3.7")

INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
CPU = torch.device("cpu")
KEY = DropoutKey.on(CPU, 77)
APART = 0.008
"""What may be apart after one rounding or two, as a share of the norm."""

runs_kernels = pytest.mark.skipif(not INTERPRETS, reason="runs in the child below")


@pytest.mark.skipif(INTERPRETS, reason="is the parent")
def test_the_kernels_hold_in_the_interpreter() -> None:
    """All tests of this file in a process of their own: the interpreter is chosen when Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    # Products of 64 bits are meant to overflow, and NumPy warns.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore::RuntimeWarning", "-p", "no:cacheprovider"]
    command += ["--noconftest", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.fixture
def _products_of_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter, which would multiply matrices of bf16 by their bits, multiply their values."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    multiply = interpreter.InterpreterBuilder.create_dot

    def exact(factor: Any) -> Any:
        if factor.dtype != tl.bfloat16:
            return factor
        return interpreter.TensorHandle((factor.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return multiply(self, exact(a), exact(b), *more)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def apart(found: Tensor | None, expected: Tensor | None) -> float:
    """How far two results are apart, as a share of the norm."""
    assert found is not None
    assert expected is not None
    assert found.shape == expected.shape
    found, expected = found.detach().float(), expected.detach().float()
    return float((found - expected).norm() / expected.norm())


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Random numbers that bfloat16 holds exactly."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def closing(num_rows: int, width: int, rate: float, call: int = 2) -> Closing:
    return Closing.of(torch.Size((num_rows, width)), nn.LayerNorm(width, eps=1e-12), rate, KEY, call)


def factors(num_rows: int, width: int, rate: float, call: int = 2) -> Tensor:
    shape = torch.Size((num_rows, width))
    return dropout_factors(shape, rate, KEY, call) if rate else torch.ones(shape)


# Passes over tensors.


@runs_kernels
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize(("num_rows", "width"), [(1, 16), (37, 48), (130, 96)])
def test_norms_and_their_slopes(num_rows: int, width: int, rate: float) -> None:
    values, residual, slope = (drawn(num_rows, width, seed=seed) for seed in range(3))
    bias, weight, shift = (drawn(width, seed=seed) for seed in range(3, 6))
    leaves = [each.clone().requires_grad_() for each in (values, residual, weight, shift, bias)]
    dropped = (leaves[0] + leaves[4]) * factors(num_rows, width, rate)
    expected = F.layer_norm(dropped + leaves[1], (width,), leaves[2], leaves[3], 1e-12)
    expected.backward(slope)
    end, half = closing(num_rows, width, rate), torch.bfloat16
    result, sums, about = launches.norm_forward(values.to(half), residual.to(half), bias, weight, shift, end)
    to_residual, to_values, to_weights = launches.norm_backward(slope.to(half), sums, about, weight, end)
    assert result.dtype == to_residual.dtype == to_values.dtype == half
    assert to_weights.dtype == torch.float32
    assert apart(result, expected) < APART
    found = (to_values, to_residual, *to_weights)
    assert [apart(each, leaf.grad) < APART for each, leaf in zip(found, leaves, strict=True)] == [True] * 5
    # The first is added to in place.
    assert to_residual.data_ptr() != to_values.data_ptr()


@runs_kernels
@pytest.mark.parametrize(("num_rows", "width"), [(1, 16), (37, 48), (130, 96)])
def test_norms_drop_what_every_other_way_drops_forward_and_backward(num_rows: int, width: int) -> None:
    zeros, ones = torch.zeros(width), torch.ones(width)
    values, residual = torch.ones(num_rows, width).bfloat16(), torch.zeros(num_rows, width).bfloat16()
    end, expected = closing(num_rows, width, 0.3, call=5), factors(num_rows, width, 0.3, call=5)
    _, sums, about = launches.norm_forward(values, residual, zeros, ones, zeros, end)
    # The interpreter cuts where a GPU rounds.
    torch.testing.assert_close(sums.float(), expected, rtol=2**-7, atol=0)
    slope = drawn(num_rows, width).bfloat16()
    to_residual, to_values, _ = launches.norm_backward(slope, sums, about, ones, end)
    kept = expected > 0
    assert bool((to_residual != 0).all())
    assert torch.equal(to_values != 0, kept)
    assert apart(to_values[kept], to_residual[kept].float() * expected.max()) < APART


@runs_kernels
@pytest.mark.parametrize(("num_rows", "width"), [(1, 16), (70, 80), (133, 272)])
@pytest.mark.parametrize("kind", ["gelu", "gelu_tanh", "relu"])
def test_activations_and_their_slopes(kind: str, num_rows: int, width: int) -> None:
    values, bias, slope = drawn(num_rows, width) * 2, drawn(width, seed=1), drawn(num_rows, width, seed=2)
    leaves = [each.clone().requires_grad_() for each in (values, bias)]
    expected = activation(kind, leaves[0] + leaves[1])
    expected.backward(slope)
    values = values.bfloat16()
    assert apart(launches.activation_forward(values, bias, kind), expected) < APART
    turned = slope.bfloat16()
    to_bias = launches.activation_backward_(turned, values, bias, kind)
    assert apart(turned, leaves[0].grad) < APART
    # Added up before slopes are rounded.
    assert to_bias.dtype == torch.float32
    assert apart(to_bias, leaves[1].grad) < 1e-5


@runs_kernels
@pytest.mark.parametrize(("num_rows", "heads", "size"), [(1, 1, 16), (133, 3, 48), (300, 2, 64)])
def test_slopes_joined_and_their_sums(num_rows: int, heads: int, size: int) -> None:
    parts = [drawn(num_rows, heads, size, seed=seed) for seed in range(3)]
    expected = torch.cat([each.view(num_rows, -1) for each in parts], dim=1)
    joined, sums = launches.join(*(each.bfloat16() for each in parts))
    assert torch.equal(joined.float(), expected)
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums, expected.sum(0), rtol=1e-5, atol=1e-4)


# Embeddings.


@runs_kernels
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize(("kinds", "offset", "width"), [(2, 0, 48), (1, 2, 32), (0, 2, 16)])
def test_embeddings_and_their_slopes(kinds: int, offset: int, width: int, rate: float) -> None:
    torch.manual_seed(0)
    words, positions = nn.Embedding(101, width), nn.Embedding(offset + 32, width)
    segments, norm = nn.Embedding(kinds, width) if kinds else None, nn.LayerNorm(width, eps=1e-5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    parts = nn.ModuleList([words, positions, norm, *([segments] if segments else [])])
    batch = stream()
    if kinds == 1:  # RoBERTa's streams have segments too; its one row is for all.
        batch = replace(batch, segment_ids=torch.zeros_like(batch.ids))
    expected = dropout(norm(sum_embeddings(batch, words, positions, segments, offset)), rate, KEY, 4)
    slope = drawn(*expected.shape)
    expected.backward(slope)
    gradients = taken_gradients(parts)
    if kinds == 1:
        batch = stream()
    found = embedded(
        batch, words, positions, segments, norm, position_offset=offset, rate=rate, key=KEY if rate else None, call=4
    )
    found.backward(slope.bfloat16())
    assert found.dtype == torch.bfloat16
    assert apart(found, expected) < APART
    if rate:
        assert torch.equal(found == 0, factors(*expected.shape, rate, call=4) == 0)
    own = taken_gradients(parts)
    assert own.keys() == gradients.keys()
    # Everything here is fp32 but the slope, which bfloat16 holds.
    assert {name: apart(own[name], each) < 1e-4 for name, each in gradients.items()} == dict.fromkeys(own, True)


# Whole encoders.

BERT = SMALL.replace(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=80)
ALBERT = BERT.replace(sharing="all", embedding_size=16, hidden_activation="gelu")
ROBERTA = BERT.replace(num_layers=1, position_offset=2, type_vocab_size=1, layer_norm_eps=1e-5)
CONFIGS = {"bert": BERT, "albert": ALBERT, "roberta": ROBERTA}
READ = torch.tensor([0, 3, 9, 10, 11, 17, 24, 33, 41, 44])


def stream() -> FlatBatch:
    """Sequences of 1 to 24 tokens, without the filler of rows, and five more behind them."""
    return without_filler(packed(((10, 7, 1), (24,), (3, 5)), 24, key=KEY.number), behind=5)


def taken_gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradients of all weights that have one, which then have none."""
    found = {name: each.grad for name, each in module.named_parameters() if each.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def plain(model: Encoder, key: DropoutKey | None, read: Tensor | None) -> Tensor:
    with use_native_kernels(False):
        return model.layers(stream(), plan_attention(stream(), "rows", torch.float32), key, read)


def by_kernels(model: Encoder, key: DropoutKey | None, read: Tensor | None, runs: GpuRuns | None = None) -> Tensor:
    # Only the layer behind narrow embeddings is left to autocast.
    with torch.autocast("cpu", torch.bfloat16):
        return model._forward_native(stream(), runs or runs_of(stream()), key, read)


def results(
    model: Encoder, compute: Callable[..., Tensor], key: DropoutKey | None, read: Tensor | None, more: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """What an encoder gives for what counts, and its gradients; `more` is read behind that and counts for nothing."""
    count = stream().num_tokens if read is None else len(read)
    if read is not None:
        read = torch.cat([read, read.new_zeros(more)])
    hidden = compute(model, key, read)
    weights = drawn(count, hidden.shape[1])
    (hidden[:count].float() * weights).sum().backward()  # type: ignore[no-untyped-call]
    return hidden[:count].detach(), taken_gradients(model)


def assert_same(
    found: tuple[Tensor, dict[str, Tensor]], expected: tuple[Tensor, dict[str, Tensor]], most: float
) -> None:
    assert apart(found[0], expected[0]) < 0.015
    assert found[1].keys() == expected[1].keys()
    # A key's bias has no slope but what rounding gives it.
    floor = 1e-2 * max(float(each.norm()) for each in expected[1].values())
    shares = {
        name: float((found[1][name] - each).norm()) / max(floor, float(each.norm()))
        for name, each in expected[1].items()
    }
    assert all(gradient.dtype == torch.float32 for gradient in found[1].values())
    assert max(shares.values()) < most, shares


@runs_kernels
@pytest.mark.usefixtures("_products_of_bf16")
@pytest.mark.parametrize(
    ("name", "rate", "reads"),
    [
        ("bert", 0.0, False),
        ("bert", 0.1, True),
        ("albert", 0.0, True),
        ("albert", 0.1, False),
        ("roberta", 0.1, True),
    ],
)
def test_an_encoder_computes_what_the_plain_one_does(name: str, rate: float, reads: bool) -> None:
    config: EncoderConfig = CONFIGS[name].replace(hidden_dropout=rate, attention_dropout=rate)
    model, key, read = encoder(config).train(), KEY if rate else None, READ if reads else None
    expected = results(model, plain, key, read)
    assert_same(results(model, by_kernels, key, read), expected, 0.03)


@runs_kernels
@pytest.mark.usefixtures("_products_of_bf16")
def test_what_fills_up_the_tokens_read_takes_nothing_from_them() -> None:
    # As a captured graph of more tokens is filled up: by the first, which is read itself, and whose slope is no less.
    model = encoder(ROBERTA).train()
    exact = results(model, by_kernels, KEY, READ)
    assert_same(results(model, by_kernels, KEY, READ, more=5), exact, 1e-3)


@runs_kernels
@pytest.mark.usefixtures("_products_of_bf16")
def test_empty_runs_behind_the_last_change_nothing() -> None:
    model, runs = encoder(ROBERTA).train(), runs_of(stream())
    more = replace(
        runs,
        offsets=torch.cat([runs.offsets, runs.offsets[-1:].expand(3)]),
        slots=torch.cat([runs.slots, runs.slots.new_zeros(3)]),
    )
    exact = results(model, by_kernels, KEY, None)
    assert_same(results(model, lambda *given: by_kernels(*given, runs=more), KEY, None), exact, 1e-6)


@runs_kernels
@pytest.mark.usefixtures("_products_of_bf16")
def test_a_sublayer_leaves_what_it_is_given_as_it_was() -> None:
    block = encoder(ROBERTA).attention_blocks[0]
    hidden = drawn(len(stream().ids), 32).bfloat16().requires_grad_()
    given = hidden.detach().clone()
    rates: dict[str, Any] = {"attention_rate": 0.1, "hidden_rate": 0.1, "dropout_key": KEY, "call": 1, "read": None}
    parts = (block.query, block.key, block.value, block.output, block.norm)
    rates["rounded"] = rounded(block.products())
    result = attention_sublayer(hidden, *parts, runs_of(stream()), num_heads=2, **rates)
    slope = torch.ones_like(result)
    result.backward(slope)
    assert torch.equal(hidden, given)
    assert bool((slope == 1).all())
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16
