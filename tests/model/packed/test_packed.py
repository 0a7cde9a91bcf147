"""What is laid out for use alone computes as the trained modules do: exactly, or as far apart as is stated here."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from packed_samples import ROUNDED, SHAPES, assert_near, encoder, expected, has_precision, laid, make_encoder

from maskwright.core.errors import DeviceError
from maskwright.core.tensors import activation
from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.dense import FusedDense, Int8Dense, pack
from maskwright.kernels.cpu.native_dense import NativeDense
from maskwright.kernels.cpu.products import PRODUCTS
from maskwright.model.packed.encoder import PackedEncoder
from maskwright.model.packed.native_encoder import NativeEncoder
from maskwright.model.states import states_of

PRECISIONS = [
    pytest.param(
        precision,
        marks=pytest.mark.skipif(
            not has_precision(precision),
            reason=f"this processor does not multiply {precision} numbers",
        ),
    )
    for precision in ROUNDED
]


@pytest.fixture(autouse=True)
def _libraries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Our own code has tests of its own (test_native.py).
    for products in PRODUCTS.values():
        monkeypatch.setattr(products.code, "_found", DeviceError("it is not asked for"))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_packed_encoder_computes_as_the_module(name: str, precision: ProductPrecision, lengths: list[int]) -> None:
    packed = PackedEncoder(encoder(name), precision)
    for text_batch in laid(lengths):
        wanted = expected(name, text_batch)
        found = packed(text_batch.batch)
        assert torch.isfinite(found).all()
        assert_near(found, wanted, precision)


@pytest.mark.parametrize("longest", [100, 128, 417], ids="rows of {}".format)  # Attention is computed in other ways.
def test_packed_encoder_computes_long_rows(longest: int) -> None:
    module = make_encoder(max_positions=longest)
    packed = PackedEncoder(module, "fp32")
    (text_batch,) = laid([longest, longest - 7, 60, 30, 1], tokens=2000)
    module.backend = "reference"
    with torch.no_grad():
        wanted = module(text_batch.batch).hidden
    assert_near(packed(text_batch.batch), wanted, "fp32")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("asked", [[9, 0, 4, 4], [10], [12, 3]], ids=str)  # Few have queries of their own.
@pytest.mark.parametrize("name", ["albert", "bert"])
def test_packed_encoder_gives_what_is_asked_for(name: str, asked: list[int], precision: ProductPrecision) -> None:
    packed = PackedEncoder(encoder(name), precision)
    (text_batch,) = laid([3, 9, 5, 1])
    assert_near(packed(text_batch.batch, torch.tensor(asked)), packed(text_batch.batch)[asked], precision)


def test_packed_encoder_lays_out_a_shared_block_once() -> None:
    shared, separate = PackedEncoder(encoder("albert"), "fp32"), PackedEncoder(encoder("bert"), "fp32")
    assert [len({id(block) for block in blocks}) for blocks in zip(*shared._layers, strict=True)] == [2, 2]
    assert [len({id(block) for block in blocks}) for blocks in zip(*separate._layers, strict=True)] == [3, 3]


def test_packed_encoder_keeps_weights_of_its_own() -> None:
    module = encoder("bert")
    packed = PackedEncoder(module, "fp32")
    (text_batch,) = laid([7, 4])
    before = packed(text_batch.batch)
    weight = module.ffn_blocks[0].dense_in.weight.data
    kept = weight.clone()
    weight.zero_()
    found = packed(text_batch.batch)
    weight.copy_(kept)
    assert torch.equal(found, before)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["", "gelu", "gelu_tanh", "relu"])
def test_dense_computes_the_layer_its_activation_or_its_residual(name: str, precision: ProductPrecision) -> None:
    torch.manual_seed(0)
    weight, bias, inputs, residual = torch.randn(48, 32), torch.randn(48), torch.randn(6, 32), torch.randn(6, 48)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    dense = pack(weight, bias, precision, name)
    with torch.inference_mode():
        plain = torch.nn.functional.linear(inputs, weight, bias)
        found = dense(inputs.to(dtype))
        assert found.dtype == dtype
        assert_near(found.float(), activation(name, plain) if name else plain, precision)
        if not name:
            assert_near(dense(inputs.to(dtype), residual.to(dtype)).float(), plain + residual, precision)


@pytest.mark.skipif(not has_precision("int8"), reason="this processor does not multiply 8-bit numbers")
class TestInt8:
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(seed=st.integers(0, 2**16), tokens=st.integers(1, 9), scale=st.sampled_from([1e-2, 1.0, 1e4]))
    @example(seed=486, tokens=2, scale=0.01)  # A weight in the middle.
    def test_it_is_the_product_of_rounded_numbers(self, seed: int, tokens: int, scale: float) -> None:
        draws = np.random.default_rng(seed)
        weight = (draws.normal(size=(24, 40)) * draws.uniform(0.1, 9, (24, 1))).astype(np.float32)
        bias = draws.normal(size=24).astype(np.float32)
        inputs = (scale * draws.normal(size=(tokens, 40)) ** 3).astype(np.float32)
        found = Int8Dense(torch.from_numpy(weight), torch.from_numpy(bias), "")(torch.from_numpy(inputs)).numpy()
        for token, row in enumerate(inputs.astype(np.float64)):
            step = (row.max() - row.min()) / 255
            rounded = row.min() + step * np.rint((row - row.min()) / step)
            for output, weights in enumerate(weight.astype(np.float64)):
                highest = np.abs(weights).max()
                wanted = rounded @ (np.rint(weights / highest * 127) * highest / 127) + bias[output]
                # What lies in the middle between two whole numbers may go to either: an input, or a weight.
                whole = weights / highest * 127
                tied = np.abs(np.abs(whole - np.rint(whole)) - 0.5) < 1e-4
                either = highest / 127 * np.abs(rounded[tied]).sum()
                assert abs(found[token, output] - wanted) <= 1.01 * (step * highest + either)

    def test_a_token_does_not_depend_on_its_company(self) -> None:
        torch.manual_seed(0)
        dense = Int8Dense(torch.randn(48, 32), torch.randn(48), "gelu")
        inputs = torch.randn(7, 32)
        inputs[3] *= 1000
        alone = torch.cat([dense(row[None]) for row in inputs])
        assert torch.equal(dense(inputs), alone)

    def test_nothing_in_gives_the_bias(self) -> None:
        weight = torch.randn(48, 32)
        weight[5] = 0
        bias = torch.randn(48)
        inputs = torch.randn(3, 32)
        inputs[1] = 0
        found = Int8Dense(weight, bias, "")(inputs)
        assert torch.equal(found[1], bias)
        assert torch.equal(found[:, 5], bias[5].expand(3))

    def test_a_width_without_a_layout_stays_exact(self) -> None:
        weight, bias, inputs = torch.randn(6, 30), torch.randn(6), torch.randn(3, 30)
        wanted = torch.nn.functional.linear(inputs, weight, bias)
        dense = pack(weight, bias, "int8")
        assert isinstance(dense, FusedDense)
        torch.testing.assert_close(dense(inputs), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not has_precision("int8"), reason="this processor does not multiply 8-bit numbers")
def test_our_own_code_is_taken_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias = torch.randn(6, 32), torch.randn(6)
    assert isinstance(pack(weight, bias, "int8"), Int8Dense)
    assert isinstance(pack(weight, bias, "fp32"), FusedDense)
    for precision in PRODUCTS:
        assert isinstance(states_of(encoder("bert"), precision), PackedEncoder)
    for products in PRODUCTS.values():
        found = products.code.look()
        if isinstance(found, DeviceError):
            pytest.skip(str(found))
        monkeypatch.setattr(products.code, "_found", found)
    assert isinstance(pack(weight, bias, "int8"), NativeDense)
    assert isinstance(pack(weight[:, :20], bias, "int8"), Int8Dense)
    assert isinstance(pack(weight, bias, "fp32"), NativeDense)
    assert isinstance(pack(weight, bias, "bf16"), FusedDense)
    for precision in PRODUCTS:
        assert isinstance(states_of(encoder("bert"), precision), NativeEncoder)
    assert isinstance(states_of(encoder("bert"), "bf16"), PackedEncoder)
