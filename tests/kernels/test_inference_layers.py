"""Encoders for inference: the C layers compute what the modules compute, in fp32 or in integers of 8 bits."""

import os
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional as F

from maskwright.core.tensors import PackedBatch
from maskwright.core.types import MatmulPrecision
from maskwright.inference.batches import TextBatch, batches
from maskwright.kernels import ops
from maskwright.kernels.cpu.encoder import MAX_INPUTS_INT8, quantize_int8
from maskwright.kernels.cpu.int8_linear import QuantizedTokens
from maskwright.kernels.setting import use_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.inference_encoder import InferenceEncoder
from maskwright.model.initialization import initialize
from maskwright.training.ranks.device import multiplies_bf16
from tests.thread_counts import with_threads

Array = NDArray[np.float64]
CPU = torch.device("cpu")
WORDS = 90
SHAPES = {
    "bert": {"hidden_activation": "gelu"},
    "google's bert": {"hidden_activation": "gelu_tanh", "num_heads": 1},
    "roberta": {"position_offset": 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_activation": "gelu"},
    "albert": {"embedding_size": 16, "sharing": "all", "num_groups": 2},
    "distilbert": {"type_vocab_size": 0, "hidden_activation": "gelu"},
    "ernie": {"hidden_activation": "relu", "layer_norm_eps": 1e-5},
    "modernbert": {
        **{"norm_placement": "pre", "feed_forward": "gated", "positions": "rotary", "type_vocab_size": 0},
        **{"norm_bias": False, "dense_bias": False, "attention_window": 8, "hidden_activation": "gelu"},
        **{"first_attention_norm": False, "num_heads": 2, "rope_theta": 160_000.0, "num_layers": 4},
    },
    "last layer with a window": {
        **{"norm_placement": "pre", "positions": "rotary", "attention_window": 3, "num_heads": 1},
        **{"intermediate_size": 400, "sharing": "attention"},
    },
    "gated post-norm": {"feed_forward": "gated", "attention_window": 20, "hidden_activation": "relu"},
    "narrow rotary heads": {"positions": "rotary"},
    "narrow heads": {"num_heads": 8, "intermediate_size": 100},
    "shared ffn": {"sharing": "ffn", "num_groups": 2, "embedding_projection": "always"},
}
# The error allowed, as a share of the largest value, and the least cosine. Weights are five times as wide as usual, so
# that rounding matters.
ROUNDED: dict[MatmulPrecision, tuple[float, float]] = {
    "fp32": (1e-5, 0.999999),
    "bf16": (0.05, 0.999),
    "int8": (0.08, 0.998),
}
NOT_IN_C = ("narrow heads", "narrow rotary heads")
LENGTHS = [7, 3, 40, 12, 1, 25]

in_c = pytest.mark.parametrize(
    "precision",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(ops.inference_problem(name) is not None, reason="no C code on this machine")
        )
        for name in ("fp32", "int8")
    ],
)


@cache
def encoder(name: str) -> Encoder:
    return make_encoder(**SHAPES[name])


def make_encoder(**shape: object) -> Encoder:
    sizes = {"hidden_size": 64, "num_layers": 3, "num_heads": 4, "intermediate_size": 128, "max_positions": 40}
    config = EncoderConfig(**{**sizes, "initializer_range": 0.1, **shape})
    made = Encoder(config, WORDS)
    initialize(made, config, seed=1)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:  # Biases start at zero: mistakes with them would be invisible.
                parameter.add_(torch.linspace(-0.3, 0.3, len(parameter)))
    return made.eval()


def compiled(model: Encoder, precision: MatmulPrecision) -> InferenceEncoder:
    made = InferenceEncoder(model, precision)
    assert made.layers is not None
    return made


def texts(lengths: list[int]) -> list[NDArray[np.int64]]:
    generator = np.random.default_rng(len(lengths))
    return [generator.integers(0, WORDS, n) for n in lengths]


def batch_of(lengths: list[int]) -> TextBatch:
    (made,) = batches(texts(lengths), tokens=1000, device=CPU)
    return made


def by_modules(name: str, batch: PackedBatch) -> torch.Tensor:
    with torch.no_grad(), use_kernels(False):
        return encoder(name)(batch).hidden


def assert_near(actual: torch.Tensor, wanted: torch.Tensor, precision: MatmulPrecision) -> None:
    error, cosine = ROUNDED[precision]
    assert actual.dtype == torch.float32
    assert (actual - wanted).abs().max() <= error * wanted.abs().max()
    assert torch.cosine_similarity(actual, wanted, dim=-1).min() >= cosine


# --- all precisions


@pytest.mark.parametrize("precision", ROUNDED)
@pytest.mark.parametrize("name", SHAPES)
def test_hidden_states_are_those_of_the_modules(name: str, precision: MatmulPrecision) -> None:
    if precision == "bf16" and not multiplies_bf16(CPU):
        pytest.skip("no bf16 instructions")
    model = InferenceEncoder(encoder(name), precision)
    in_c = precision != "bf16" and ops.inference_problem(precision) is None and name not in NOT_IN_C
    assert (model.layers is None) == (not in_c)
    for lengths in ([1], [40], [16], LENGTHS, [39, 38, 17, 33]):
        batch = batch_of(lengths).batch
        assert_near(model(batch), by_modules(name, batch), precision)
        positions = torch.tensor([0, sum(lengths) - 1, 0])
        torch.testing.assert_close(model(batch, positions), model(batch)[positions], rtol=0.02, atol=0.02)


def test_shapes_and_settings_that_c_does_not_support_use_the_modules() -> None:
    odd = Encoder(EncoderConfig(hidden_size=64, num_heads=8, intermediate_size=100, num_layers=1), WORDS).eval()
    assert InferenceEncoder(odd, "int8").layers is None
    with warnings.catch_warnings(action="error"), torch.no_grad():
        model, batch = InferenceEncoder(odd, "fp32"), batch_of([5, 9]).batch
        assert model.layers is None
        torch.testing.assert_close(model(batch), odd(batch).hidden)
    with use_kernels(False):
        assert InferenceEncoder(encoder("bert"), "fp32").layers is None
    inner, one = MAX_INPUTS_INT8 + 16, ops.InferenceLayer(0, 0)
    wide = [ops.Sublayer([torch.nn.Linear(16, inner)], torch.nn.Linear(inner, 16), torch.nn.LayerNorm(16))]
    assert ops.inference_layers(wide, wide, [one], num_heads=1, activation="relu", precision="int8") is None


# --- PyTorch's int8


@given(tokens=st.integers(1, 40), inputs=st.integers(1, 70), outputs=st.integers(1, 70), data=st.data())
@settings(max_examples=40)
def test_int8_layers_multiply_rounded_numbers_exactly(tokens, inputs, outputs, data):
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9)))
    values, weight = (torch.randn(rows, inputs, generator=generator) for rows in (tokens, outputs))
    if data.draw(st.booleans()):  # The largest integers only, whose sums must not overflow.
        values[:, 1:], weight = 1, weight.sign()
    layer = torch.nn.Linear(inputs, outputs, bias=data.draw(st.booleans())).requires_grad_(False)
    layer.weight.copy_(weight)
    quantized = QuantizedTokens.of(values)
    rounded = quantized.center.double() + (quantized.integers.double() - 128) * quantized.half_range / 127
    assert ((rounded - values).abs() <= 0.501 * quantized.half_range / 127 + 1e-6).all()
    scales = weight.abs().amax(1, keepdim=True) / 63
    wanted = rounded @ ((weight / scales).round().double() * scales).T
    wanted = wanted if layer.bias is None else wanted + layer.bias
    torch.testing.assert_close(ops.Int8Linear(layer)(values), wanted.float(), rtol=1e-5, atol=1e-5)


def test_an_int8_text_does_not_depend_on_the_rest_of_its_batch() -> None:
    model, together = InferenceEncoder(encoder("modernbert"), "int8"), batch_of(LENGTHS)
    hidden = model(together.batch)
    for text, start in zip(together.texts, together.starts, strict=True):
        (alone,) = batches([texts(LENGTHS)[text]], tokens=1000, device=CPU)
        torch.testing.assert_close(hidden[start : start + LENGTHS[text]], model(alone.batch), rtol=0, atol=1e-2)


# --- the C code


def quantized(values: Array) -> Array:
    """Round one token's values to 256 numbers between its least and its greatest."""
    scale = (values.max() - values.min()) / 255
    if scale == 0:
        return values
    zero_point = values.min() + 128 * scale
    return zero_point + scale * np.clip(np.rint((values - zero_point) / scale), -128, 127)


def quantized_weights(weight: Array) -> Array:
    integers, scales = quantize_int8(torch.from_numpy(weight))
    return (integers * scales[:, None]).numpy()


def by_formula(model: Encoder, ids: NDArray[np.int64], precision: str) -> Array:
    """Encode one text token by token in fp64, or in integers of 8 bits between fp64 values."""
    (text_batch,) = batches([ids], tokens=1000, device=CPU)
    config = model.config
    with torch.inference_mode():
        hidden = model.embed(text_batch.batch, None).double().numpy()

    def dense(layer: torch.nn.Linear, values: Array) -> Array:
        weight = layer.weight.detach().double().numpy()
        bias = 0.0 if layer.bias is None else layer.bias.detach().double().numpy()
        if precision == "fp32":
            return values @ weight.T + bias
        return np.stack([quantized_weights(weight) @ quantized(token) for token in values]) + bias

    def norm(layer: torch.nn.LayerNorm | None, values: Array) -> Array:
        if layer is None:
            return values
        weight, bias = (None if each is None else each.detach().double() for each in (layer.weight, layer.bias))
        return F.layer_norm(torch.from_numpy(values), layer.normalized_shape, weight, bias, layer.eps).numpy()

    def rotated(values: Array, theta: float) -> Array:
        half = values.shape[1] // 2
        turns = np.exp(1j * np.outer(np.arange(len(values)), theta ** -(np.arange(half) / half)))
        turned = (values[:, :half] + 1j * values[:, half:]) * turns
        return np.concatenate([turned.real, turned.imag], 1)

    is_pre, distance = config.norm_placement == "pre", np.abs(np.subtract.outer(*[np.arange(len(ids))] * 2))
    for layer, (attention, ffn) in enumerate(model.plan):
        block, feed_forward = model.attention_blocks[attention], model.ffn_blocks[ffn]
        values = norm(block.norm, hidden) if is_pre else hidden
        queries, keys, values = (
            np.split(dense(each, values), config.num_heads, 1) for each in (block.query, block.key, block.value)
        )
        context, window = [], config.window(layer)
        for q, k, v in zip(queries, keys, values, strict=True):
            if config.positions == "rotary":
                q, k = (rotated(each, config.theta(layer)) for each in (q, k))
            shares = np.exp(q @ k.T / np.sqrt(q.shape[1])) * (window is None or distance <= window)
            context.append(shares / shares.sum(1, keepdims=True) @ v)
        hidden = dense(block.output, np.concatenate(context, 1)) + hidden
        hidden = values = hidden if is_pre else norm(block.norm, hidden)
        inner = dense(feed_forward.dense_in, norm(feed_forward.norm, values) if is_pre else values)
        gate = 1.0
        if config.feed_forward == "gated":
            inner, gate = np.split(inner, 2, 1)
        inner = ops.activation(config.hidden_activation, torch.from_numpy(np.ascontiguousarray(inner))).numpy() * gate
        hidden = dense(feed_forward.dense_out, inner) + hidden
        hidden = hidden if is_pre else norm(feed_forward.norm, hidden)
    return norm(model.final_norm, hidden)


@in_c
class TestInC:
    @settings(max_examples=15)
    @given(data=st.data())
    def test_hidden_states_are_those_of_the_formula(self, precision: ops.Precision, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in SHAPES if name not in NOT_IN_C]))
        lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
        text_batch, tokens = batch_of(lengths), sum(lengths)
        wanted = torch.zeros(tokens, 64, dtype=torch.float64)
        for text, start in zip(text_batch.texts, text_batch.starts, strict=True):
            result = by_formula(encoder(name), texts(lengths)[text], precision)
            wanted[start : start + lengths[text]] = torch.from_numpy(result)
        chosen = data.draw(st.none() | st.lists(st.integers(0, tokens - 1), max_size=2 * tokens))
        positions = None if chosen is None else torch.tensor(chosen, dtype=torch.int64)
        with with_threads(data.draw(st.sampled_from([1, 2]))):
            actual = compiled(encoder(name), precision)(text_batch.batch, positions)
        wanted = wanted if positions is None else wanted[positions]
        assert actual.shape == wanted.shape
        # A value halfway between two integers may be rounded to either, which the layers above then see.
        error = (actual - wanted).abs()
        allowed = {"fp32": 1e-5, "int8": 0.02}[precision]
        assert not len(error) or error.max() <= allowed * wanted.abs().max()

    @pytest.mark.parametrize("name", ["bert", "modernbert"])
    def test_a_text_does_not_depend_on_the_rest_of_its_batch(self, precision: ops.Precision, name: str) -> None:
        model = compiled(encoder(name), precision)
        together = batch_of(LENGTHS)
        actual = model(together.batch)
        for text, start in zip(together.texts, together.starts, strict=True):
            (alone,) = batches([texts(LENGTHS)[text]], tokens=1000, device=CPU)
            assert torch.equal(actual[start : start + LENGTHS[text]], model(alone.batch))

    @pytest.mark.parametrize("name", ["ernie", "modernbert", "last layer with a window"])
    def test_threads_and_output_positions_change_no_bit(self, precision: ops.Precision, name: str) -> None:
        model, batch = compiled(encoder(name), precision), batch_of([17, 3, 30]).batch
        every = torch.cat([torch.arange(50).flip(0), torch.arange(50)])
        outputs = []
        for threads in (1, 2, 3, 16):
            with with_threads(threads):
                outputs.append(model(batch))
                assert torch.equal(model(batch, every), outputs[0][every])
                assert torch.equal(model(batch, every[-1:].int()), outputs[0][-1:])
        assert all(torch.equal(each, outputs[0]) for each in outputs)

    def test_a_forked_process_computes_the_same(self, precision: ops.Precision) -> None:
        # With one thread, as PyTorch's loaders have: its own layers wait forever for threads that a fork does not have.
        model, batch = compiled(encoder("bert"), precision), batch_of([17, 3]).batch
        with torch.inference_mode():
            hidden = encoder("bert").embed(batch, None)
        sequences = ops.Sequences(batch.cu_seqlens, batch.max_seqlen)
        with with_threads(2):
            before = model.layers(hidden, sequences)
            child = os.fork()
            if not child:
                torch.set_num_threads(1)
                os._exit(0 if torch.equal(model.layers(hidden, sequences), before) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @pytest.mark.parametrize("name", ["bert", "modernbert"])
    def test_positions_and_embeddings_that_do_not_exist_are_refused(self, precision: ops.Precision, name: str) -> None:
        model, batch = compiled(encoder(name), precision), batch_of([6, 5]).batch
        for position in (11, 1 << 40, -12):
            with pytest.raises(IndexError):
                model(batch, torch.tensor([0, position]))
        assert torch.equal(model(batch, torch.tensor([-11])), model(batch)[:1])
        for field in ("ids", "position_ids", *["segment_ids"] * (name == "bert")):
            for number in (-3, WORDS, 1 << 62):
                with pytest.raises(IndexError):
                    model(replace(batch, **{field: torch.full((11,), number)}))

    def test_no_tokens_and_no_positions_give_nothing(self, precision: ops.Precision) -> None:
        model, none = compiled(encoder("bert"), precision), torch.zeros(0, dtype=torch.int64)
        batch = batch_of([6, 5]).batch
        assert model(batch, none).shape == (0, 64)
        bounds = torch.zeros(1, dtype=torch.int32)
        empty = replace(batch, ids=none, position_ids=none, segment_ids=none, cu_seqlens=bounds)
        assert model(empty).shape == (0, 64)

    @pytest.mark.parametrize("name", ["bert", "last layer with a window"])
    def test_empty_sequences_change_nothing(self, precision: ops.Precision, name: str) -> None:
        model, batch = compiled(encoder(name), precision), batch_of([5, 4]).batch
        bounds = torch.tensor([0, 0, 5, 5, 9, 9], dtype=torch.int32)
        positions = torch.tensor([8, 0, 5, 4])
        assert torch.equal(model(replace(batch, cu_seqlens=bounds)), model(batch))
        assert torch.equal(model(replace(batch, cu_seqlens=bounds), positions), model(batch)[positions])

    def test_no_default_device_is_used(self, precision: ops.Precision) -> None:
        batch = batch_of([5, 4]).batch
        wanted = compiled(encoder("modernbert"), precision)(batch)
        with torch.device("meta"):
            hidden = compiled(encoder("modernbert"), precision)(batch, torch.arange(9, device=CPU))
        assert torch.equal(hidden, wanted)

    def test_nan_stays_in_its_text(self, precision: ops.Precision) -> None:
        model = make_encoder(hidden_activation="relu")
        with torch.no_grad():
            model.word_embeddings.weight[7] = torch.nan
        ids = [np.array([5, 6]), np.array([7, 8, 9]), np.array([10, 11, 12])]
        (text_batch,) = batches(ids, tokens=1000, device=CPU)
        actual = compiled(model, precision)(text_batch.batch)
        is_nan = np.repeat(text_batch.texts == 1, np.diff(text_batch.batch.cu_seqlens.numpy()))
        assert actual[is_nan].isnan().all()
        assert actual[~is_nan].isfinite().all()

    @pytest.mark.parametrize(
        "shape",
        [
            {"hidden_size": 16, "num_heads": 1, "intermediate_size": 16},
            {"hidden_size": 48, "num_heads": 3, "intermediate_size": 16},
            {"hidden_size": 80, "num_heads": 1, "intermediate_size": 336, "num_layers": 1},
            {"hidden_size": 128, "num_heads": 2, "intermediate_size": 1040, "max_positions": 530},
            {
                **{"hidden_size": 96, "num_heads": 1, "intermediate_size": 144, "max_positions": 1100},
                **{"positions": "rotary", "attention_window": 64, "norm_placement": "pre", "feed_forward": "gated"},
            },
        ],
        ids=str,
    )
    def test_every_multiple_of_sixteen_is_supported(self, precision: ops.Precision, shape: dict[str, object]) -> None:
        source = make_encoder(**shape)
        sequences = [np.arange(length) % WORDS for length in (source.config.max_positions, 17, 8, 1)]
        (text_batch,) = batches(sequences, tokens=2000, device=CPU)
        with torch.no_grad():
            wanted = source(text_batch.batch).hidden
        model = compiled(source, precision)
        actual = model(text_batch.batch)
        assert_near(actual, wanted, precision)
        positions = torch.tensor([text_batch.batch.num_tokens - 1, 0])
        assert torch.equal(model(text_batch.batch, positions), actual[positions])

    @pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])
    def test_activations_are_those_of_pytorch(self, precision: ops.Precision, name: str) -> None:
        # The first layer's inner values are its biases; the identity follows, and LayerNorm with a huge epsilon.
        values = torch.linspace(-8, 8, 256)
        width, tokens = len(values), torch.zeros(1, len(values))
        identity = torch.nn.Linear(width, width)
        dense_in, dense_out = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        norm, plain = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        with torch.no_grad():
            for layer in (identity, dense_in, dense_out):
                layer.weight.zero_()
                layer.bias.zero_()
            dense_in.bias.copy_(values)
            dense_out.weight.copy_(torch.eye(width))
        layers = ops.inference_layers(
            [ops.Sublayer([identity] * 3, identity, norm)],
            [ops.Sublayer([dense_in], dense_out, norm)],
            [ops.InferenceLayer(0, 0)],
            num_heads=1,
            activation=name,
            precision=precision,
        )
        actual = layers(tokens, ops.Sequences(torch.tensor([0, 1]), 1))
        expected = plain(ops.activation(name, values)[None])
        tolerance = 2e-6 if precision == "fp32" else 0.03
        torch.testing.assert_close(actual, expected.detach(), atol=tolerance, rtol=1e-5)
