"""Our own code computes what is said of it in each precision, bit for bit the same in any company."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from packed_samples import CPU, SHAPES, WORDS, assert_near, encoder, expected, laid, make_encoder, texts
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.tensors import PackedBatch, activation
from maskwright.inference.batching import batches
from maskwright.kernels.cpu import products as cpu_products
from maskwright.kernels.cpu.dense import FusedDense, pack
from maskwright.kernels.cpu.int8_support import int8_support
from maskwright.kernels.cpu.native_dense import NativeDense
from maskwright.kernels.cpu.products import PRODUCTS, NativePrecision, fits
from maskwright.kernels.setting import use_native_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.packed.embedding import Embedding
from maskwright.model.packed.encoder import PackedEncoder
from maskwright.model.packed.native_encoder import NativeEncoder, takes
from maskwright.model.states import states_of
from tests.thread_counts import with_threads

Array = NDArray[np.float64]
NAMES = ["", "gelu", "gelu_tanh", "relu"]


def where_there_is_code(*precisions: NativePrecision) -> pytest.MarkDecorator:
    """Run a test, or all of a class, in each of these precisions that there is compiled code for."""
    return pytest.mark.parametrize(
        "precision",
        [
            pytest.param(
                precision,
                marks=pytest.mark.skipif(
                    PRODUCTS[precision].code.library() is None, reason=str(PRODUCTS[precision].code.problem())
                ),
            )
            for precision in precisions
        ],
    )


# --- where it cannot be had


def test_it_is_done_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, "fma3": True, "avx512_vnni": True})
    for products in PRODUCTS.values():
        assert "lacks instructions of the C code (AVX512_BW, AVX512_DQ, AVX512_VL)" in str(products.code.look())


def test_it_is_done_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for products in PRODUCTS.values():
        assert "for Linux" in str(products.code.look())


@where_there_is_code("fp32", "int8")
class TestWithoutACompiler:
    def test_the_libraries_compute(
        self, precision: NativePrecision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASKWRIGHT_CACHE", str(tmp_path))
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CC", raising=False)
        code = PRODUCTS[precision].code
        found = code.look()
        assert "no C compiler" in str(found)
        monkeypatch.setattr(code, "_found", found)
        assert code.library() is None
        states = states_of(encoder("bert"), precision)
        assert isinstance(states, PackedEncoder)
        (text_batch,) = laid([7, 3])
        wanted = expected("bert", text_batch)
        assert_near(states(text_batch.batch), wanted, precision)
        if precision == "int8":
            support = int8_support()
            assert (support.by, support.why) == ("libraries", "there is no C compiler here")
            assert "Install gcc" in support.todo

    def test_the_source_is_part_of_the_package_and_gnu_c(self, precision: NativePrecision) -> None:
        assert PRODUCTS[precision].code.source.is_file()
        assert precision != "int8" or int8_support().by == "compiled"


@where_there_is_code("fp32")
def test_a_run_begun_without_our_own_code_goes_on_without_it(precision: NativePrecision) -> None:
    weight, bias = torch.randn(6, 32), torch.randn(6)
    with use_native_kernels(False):
        assert not takes(encoder("bert").config, precision)
        assert isinstance(states_of(encoder("bert"), precision), PackedEncoder)
        assert isinstance(pack(weight, bias, precision), FusedDense)
    assert isinstance(states_of(encoder("bert"), precision), NativeEncoder)
    assert isinstance(pack(weight, bias, precision), NativeDense)


# --- one layer


def rounded(values: Array) -> Array:
    """Round one token's values as the module's docstring says."""
    step = (values.max() - values.min()) / 255
    if step == 0:
        return values
    middle = values.min() + 128 * step
    return middle + step * np.clip(np.rint((values - middle) / step), -128, 127)


def rounded_weights(weight: Array) -> Array:
    steps = np.maximum(np.abs(weight).max(1, keepdims=True), 1e-30) / 127
    return np.rint(weight / steps) * steps


@where_there_is_code("fp32", "int8")
class TestDense:
    def test_neither_company_nor_threads_change_a_token(self, precision: NativePrecision) -> None:
        torch.manual_seed(0)
        dense = NativeDense(torch.randn(100, 32), torch.randn(100), "gelu", precision=precision)
        inputs = torch.randn(23, 32)
        inputs[3] *= 1000
        inputs[5, 5] = torch.nan
        alone = torch.cat([dense(row[None]) for row in inputs])
        for threads in (1, 2, 3, 16):
            with with_threads(threads):
                torch.testing.assert_close(dense(inputs), alone, rtol=0, atol=0, equal_nan=True)

    @pytest.mark.parametrize("inputs", [48, 256, 1040, 3072])
    def test_any_number_of_tokens_gives_each_what_it_gets_alone(self, precision: NativePrecision, inputs: int) -> None:
        torch.manual_seed(1)
        dense = NativeDense(torch.randn(112, inputs), torch.randn(112), "gelu", precision=precision)
        values = torch.randn(41, inputs)
        alone = torch.cat([dense(row[None]) for row in values])
        for tokens in range(1, len(values) + 1):
            assert torch.equal(dense(values[:tokens]), alone[:tokens])

    def test_many_tokens_give_each_what_it_gets_alone(self, precision: NativePrecision) -> None:
        torch.manual_seed(1)
        dense = NativeDense(torch.randn(112, 1040), torch.randn(112), "gelu", precision=precision)
        values = torch.randn(1100, 1040)
        alone = torch.cat([dense(row[None]) for row in values])
        for tokens in (512, 513, 1100):
            for threads in (1, 3):
                with with_threads(threads):
                    assert torch.equal(dense(values[:tokens]), alone[:tokens])

    @pytest.mark.parametrize("outputs", [48, 50])
    def test_a_residual_is_added_last(self, precision: NativePrecision, outputs: int) -> None:
        torch.manual_seed(2)
        dense = NativeDense(torch.randn(outputs, 32), torch.randn(outputs), precision=precision)
        inputs, residual = torch.randn(9, 32), torch.randn(9, outputs)
        assert torch.equal(dense(inputs, residual), dense(inputs) + residual)
        assert torch.equal(dense(inputs, residual.T.contiguous().T), dense(inputs) + residual)

    def test_nothing_gives_the_bias(self, precision: NativePrecision) -> None:
        weight, bias, inputs = torch.randn(48, 32), torch.randn(48), torch.randn(3, 32)
        weight[5] = 0
        inputs[1] = 0
        found = NativeDense(weight, bias, precision=precision)(inputs)
        assert torch.equal(found[1], bias)
        assert torch.equal(found[:, 5], bias[5].expand(3))

    def test_no_tokens_give_none(self, precision: NativePrecision) -> None:
        assert NativeDense(torch.randn(50, 32), torch.randn(50), precision=precision)(torch.randn(0, 32)).shape == (
            0,
            50,
        )

    def test_one_number_everywhere_is_that_number(self, precision: NativePrecision) -> None:
        found = NativeDense(torch.ones(16, 32), torch.zeros(16), precision=precision)(torch.full((1, 32), -7.25))
        torch.testing.assert_close(found, torch.full((1, 16), -7.25 * 32))

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
    @pytest.mark.parametrize("place", [0, 5, 16, 31])
    def test_what_is_no_number_stays_none(
        self, precision: NativePrecision, name: str, value: float, place: int
    ) -> None:
        torch.manual_seed(0)
        inputs = torch.randn(3, 32)
        inputs[1, place] = value
        found = NativeDense(torch.randn(50, 32), torch.randn(50), name, precision=precision)(inputs)
        if precision == "int8" or value != value:
            assert found[1].isnan().all()
        elif not name:
            assert found[1].isinf().all()
        assert found[[0, 2]].isfinite().all()

    @pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])
    def test_activations_are_those_of_the_library(self, precision: NativePrecision, name: str) -> None:
        bias = torch.cat([torch.linspace(-30, 30, 4801), torch.tensor([-1e30, -200.0, -0.0, 200.0, 1e30])])
        dense = NativeDense(torch.zeros(len(bias), 16), bias, name, precision=precision)
        torch.testing.assert_close(dense(torch.zeros(1, 16))[0], activation(name, bias), atol=2e-6, rtol=1e-6)

    @pytest.mark.parametrize("outputs", [192, 100])  # Whole panels, where nothing is padded; and not.
    def test_weights_are_kept_as_they_were(self, precision: NativePrecision, outputs: int) -> None:
        weight, bias, inputs = torch.randn(outputs, 32), torch.randn(outputs), torch.randn(2, 32)
        dense = NativeDense(weight, bias, precision=precision)
        before = dense(inputs)
        weight.zero_()
        bias.zero_()
        assert torch.equal(dense(inputs), before)

    def test_what_it_is_given_may_lie_and_be_stored_otherwise(self, precision: NativePrecision) -> None:
        weight, bias, inputs = torch.randn(48, 32), torch.randn(48), torch.randn(5, 32)
        wanted = NativeDense(weight, bias, precision=precision)(inputs)
        aside = NativeDense(weight.T.contiguous().T.double(), bias.double(), precision=precision)
        assert torch.equal(aside(inputs.T.contiguous().T), wanted)
        assert torch.equal(aside(inputs.double()), wanted)

    def test_another_width_is_refused(self, precision: NativePrecision) -> None:
        dense = NativeDense(torch.randn(16, 32), torch.randn(16), precision=precision)
        with pytest.raises(ValueError, match="has 32 inputs, and was given 48"):
            dense(torch.randn(2, 48))


def multiplied(inputs: Array, weight: Array, bias: Array, name: str) -> tuple[Tensor, Tensor]:
    """Return a layer's results in fp64, and what fp32's rounding of its sums may be a share of."""
    wanted = torch.from_numpy(inputs @ weight.T + bias)
    largest = torch.from_numpy(np.abs(inputs) @ np.abs(weight.T) + np.abs(bias))
    return activation(name, wanted) if name else wanted, largest


@where_there_is_code("fp32")
class TestDenseOfFp32:
    @settings(max_examples=60, deadline=None)
    @given(
        seed=st.integers(0, 2**16),
        tokens=st.integers(0, 30),
        inputs=st.integers(1, 100) | st.sampled_from([1023, 1024, 1025, 2050, 4097]),
        outputs=st.integers(1, 150),
        threads=st.sampled_from([1, 2, 5]),
        name=st.sampled_from(NAMES),
    )
    def test_it_is_the_product(
        self, precision: NativePrecision, seed: int, tokens: int, inputs: int, outputs: int, threads: int, name: str
    ) -> None:
        draws = np.random.default_rng(seed)
        values, weight, bias = (draws.normal(size=size) for size in ((tokens, inputs), (outputs, inputs), outputs))
        values, weight, bias = (each.astype(np.float32) for each in (values, weight, bias))
        dense = NativeDense(torch.from_numpy(weight), torch.from_numpy(bias), name, precision=precision)
        with with_threads(threads):
            found = dense(torch.from_numpy(values))
        wanted, largest = multiplied(
            values.astype(np.float64), weight.astype(np.float64), bias.astype(np.float64), name
        )
        assert found.shape == (tokens, outputs)
        # The rounding of so many additions, if all went one way, would be inputs x 6e-8.
        assert ((found - wanted).abs() <= 2e-6 * largest + 1e-6).all()

    def test_whole_numbers_are_multiplied_exactly(self, precision: NativePrecision) -> None:
        draws = np.random.default_rng(0)
        for tokens in range(1, 15):
            for inputs, outputs in ((17, 70), (1030, 64), (2100, 16)):
                values = draws.integers(-50, 50, (tokens, inputs)).astype(float)
                weight, bias = (
                    draws.integers(-50, 50, (outputs, inputs)).astype(float),
                    np.arange(outputs).astype(float),
                )
                layer = [torch.tensor(each, dtype=torch.float32) for each in (weight, bias)]
                found = NativeDense(layer[0], layer[1], precision=precision)(torch.tensor(values))
                assert torch.equal(found.double(), torch.tensor(values @ weight.T + bias))


@where_there_is_code("int8")
class TestDenseOf8Bits:
    @settings(max_examples=60, deadline=None)
    @given(
        seed=st.integers(0, 2**16),
        tokens=st.integers(0, 20),
        inputs=st.integers(1, 9),
        outputs=st.integers(1, 110),
        threads=st.sampled_from([1, 2]),
        name=st.sampled_from(NAMES),
    )
    def test_what_8_bits_hold_is_multiplied_exactly(
        self, precision: NativePrecision, seed: int, tokens: int, inputs: int, outputs: int, threads: int, name: str
    ) -> None:
        draws, inputs = np.random.default_rng(seed), 16 * inputs
        whole = draws.integers(-128, 128, (tokens, inputs))
        whole[:, [0, -1]] = [-128, 127]
        values = (whole + draws.integers(-300, 300, (tokens, 1))) * 2.0 ** draws.integers(-9, 3, (tokens, 1))
        weight = draws.integers(-127, 128, (outputs, inputs)).astype(float)
        weight[:, draws.integers(inputs)] = 127
        weight *= 2.0 ** draws.integers(-12, -4, (outputs, 1))
        bias = draws.normal(size=outputs)
        layer = [torch.tensor(each, dtype=torch.float32) for each in (weight, bias)]
        dense = NativeDense(layer[0], layer[1], name, precision=precision)
        with with_threads(threads):
            found = dense(torch.tensor(values, dtype=torch.float32))
        assert found.shape == (tokens, outputs)
        wanted, largest = multiplied(values, weight, bias, name)
        # fp32 rounds a handful of sums; each is no larger than this.
        assert ((found - wanted).abs() <= 1e-6 * largest + 1e-6).all()

    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 2**16), tokens=st.integers(1, 9), scale=st.sampled_from([1e-30, 1e-2, 1.0, 1e4, 1e30]))
    def test_it_is_the_product_of_rounded_numbers(
        self, precision: NativePrecision, seed: int, tokens: int, scale: float
    ) -> None:
        draws = np.random.default_rng(seed)
        weight = draws.normal(size=(50, 48)) * draws.uniform(0.1, 9, (50, 1))
        values = scale * draws.normal(size=(tokens, 48)) ** 3
        dense = NativeDense(torch.tensor(weight, dtype=torch.float32), torch.zeros(50), precision=precision)
        found = dense(torch.tensor(values, dtype=torch.float32))
        for row, token in zip(found.double().numpy(), values, strict=True):
            wanted = rounded_weights(weight) @ rounded(token)
            # What lies in the middle between two whole numbers may go to either: one step of the largest weight.
            step = (token.max() - token.min()) / 255
            assert (np.abs(row - wanted) <= 1.01 * step * np.abs(weight).max(1)).all()

    @pytest.mark.parametrize("sign", [1, -1])
    def test_sums_of_the_widest_layer_fit(self, precision: NativePrecision, sign: int) -> None:
        most = cpu_products._MOST_INPUTS
        # The largest sums there are: every product is 255 x -128 (or 1 x -128) before the zero point is taken off.
        inputs = torch.full((1, most), -1.0)
        inputs[0, 0] = 1.0
        dense = NativeDense(torch.full((1, most), float(sign)), torch.zeros(1), precision=precision)
        torch.testing.assert_close(dense(inputs), torch.tensor([[sign * (2.0 - most)]]))
        assert fits(most, precision)
        assert not fits(most + 16, precision)
        assert not fits(40, precision)


# --- an encoder


def oracle(module: Encoder, ids: NDArray[np.int64], precision: NativePrecision) -> Array:
    """Encode one text token by token in fp64, or in whole numbers of 8 bits between fp64 ones."""
    (text_batch,) = batches([ids], tokens=1000, device=CPU)
    config = module.config
    with torch.inference_mode():
        hidden = Embedding(module)(text_batch.batch).double().numpy()

    def dense(layer: torch.nn.Linear, values: Array) -> Array:
        weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
        if precision == "fp32":
            return values @ weight.T + bias
        return np.stack([rounded_weights(weight) @ rounded(token) for token in values]) + bias

    def norm(layer: torch.nn.LayerNorm, values: Array) -> Array:
        return F.layer_norm(
            torch.from_numpy(values),
            layer.normalized_shape,
            layer.weight.detach().double(),
            layer.bias.detach().double(),
            layer.eps,
        ).numpy()

    for attention, ffn in zip(config.layer_plan("attention"), config.layer_plan("ffn"), strict=True):
        block, feed_forward = module.attention_blocks[attention], module.ffn_blocks[ffn]
        queries, keys, values = (
            np.split(dense(layer, hidden), config.num_heads, 1) for layer in (block.query, block.key, block.value)
        )
        mixed = []
        for q, k, v in zip(queries, keys, values, strict=True):
            shares = np.exp(q @ k.T / np.sqrt(q.shape[1]))
            mixed.append(shares / shares.sum(1, keepdims=True) @ v)
        hidden = norm(block.norm, dense(block.output, np.concatenate(mixed, 1)) + hidden)
        inner = activation(config.hidden_activation, torch.from_numpy(dense(feed_forward.dense_in, hidden))).numpy()
        hidden = norm(feed_forward.norm, dense(feed_forward.dense_out, inner) + hidden)
    return hidden


def flat(ids: list[int], sequence_ids: list[int], _row: int | None = None) -> PackedBatch:
    lengths = torch.bincount(torch.tensor(sequence_ids, dtype=torch.int64))
    zeros = torch.zeros(len(ids), dtype=torch.int64)
    return PackedBatch(
        ids=torch.tensor(ids, dtype=torch.int64),
        position_ids=zeros,
        segment_ids=zeros,
        cu_seqlens=F.pad(lengths.cumsum(0), (1, 0)).int(),
        max_seqlen=max(lengths.tolist(), default=0),
    )


@where_there_is_code("fp32", "int8")
class TestEncoder:
    @pytest.mark.parametrize("name", SHAPES)
    def test_it_computes_as_the_module(self, precision: NativePrecision, name: str) -> None:
        states = states_of(encoder(name), precision)
        assert isinstance(states, NativeEncoder)
        for lengths in ([1], [40], [16], [7, 3, 40, 12, 1, 25], [5, 5, 5, 9], [39, 38, 17, 33]):
            for text_batch in laid(lengths):
                wanted = expected(name, text_batch)
                found = states(text_batch.batch)
                assert_near(found, wanted, precision)

    @settings(max_examples=25, deadline=None)
    @given(data=st.data())
    def test_it_is_what_the_oracle_says(self, precision: NativePrecision, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(SHAPES)))
        lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
        threads = data.draw(st.sampled_from([1, 2]))
        (text_batch,) = laid(lengths)
        slots = len(text_batch.batch.ids)
        wanted = torch.zeros(slots, 64, dtype=torch.float64)
        for text, start in zip(text_batch.texts, text_batch.starts, strict=True):
            wanted[start : start + lengths[text]] = torch.from_numpy(
                oracle(encoder(name), texts(lengths)[text], precision)
            )
        read = data.draw(st.none() | st.lists(st.integers(0, slots - 1), max_size=2 * slots))
        with with_threads(threads):
            if read is None:
                found = NativeEncoder(encoder(name), precision)(text_batch.batch)
            else:
                wanted = wanted[read]
                found = NativeEncoder(encoder(name), precision)(text_batch.batch, torch.tensor(read, dtype=torch.int64))
        assert found.shape == wanted.shape
        # A number in the middle between two whole ones may go to either, which the layers above then see.
        apart = (found - wanted).abs()
        allowed = {"fp32": 1e-5, "int8": 0.02}[precision]
        assert not len(apart) or apart.max() <= allowed * wanted.abs().max()

    def test_nearly_all_of_it_is_what_the_oracle_says_to_rounding(self, precision: NativePrecision) -> None:
        lengths = [7, 3, 40, 12, 1, 25]
        for name in SHAPES:
            (text_batch,) = laid(lengths)
            found = NativeEncoder(encoder(name), precision)(text_batch.batch)
            apart = torch.cat(
                [
                    (
                        found[start : start + lengths[text]]
                        - torch.from_numpy(oracle(encoder(name), texts(lengths)[text], precision))
                    ).abs()
                    for text, start in zip(text_batch.texts, text_batch.starts, strict=True)
                ]
            )
            # The rest is behind a number in the middle between two whole ones, which went the other way.
            assert apart.median() <= 1e-5

    def test_a_text_does_not_depend_on_its_company(self, precision: NativePrecision) -> None:
        states = NativeEncoder(encoder("bert"), precision)
        lengths = [7, 3, 40, 12, 1, 25]
        (together,) = laid(lengths)
        found = states(together.batch)
        for text, start in zip(together.texts, together.starts, strict=True):
            (alone,) = batches([texts(lengths)[text]], tokens=1000, device=CPU)
            assert torch.equal(found[start : start + lengths[text]], states(alone.batch))

    def test_threads_and_what_is_read_change_no_bit(self, precision: NativePrecision) -> None:
        states = NativeEncoder(encoder("ernie"), precision)
        (text_batch,) = laid([17, 3, 30])
        slots = len(text_batch.batch.ids)
        every = torch.cat([torch.arange(slots).flip(0), torch.arange(slots)])
        found = []
        for threads in (1, 2, 3, 16):
            with with_threads(threads):
                found.append(states(text_batch.batch))
                assert torch.equal(states(text_batch.batch, every), found[0][every])
                assert torch.equal(states(text_batch.batch, every[-1:].int()), found[0][-1:])
        assert all(torch.equal(each, found[0]) for each in found)

    def test_a_forked_process_computes_the_same(self, precision: NativePrecision) -> None:
        # With one thread, as PyTorch's loaders have: its own layers wait forever for threads that a fork has not.
        states = NativeEncoder(encoder("bert"), precision)
        (text_batch,) = laid([17, 3])
        with with_threads(2):
            before = states(text_batch.batch)
            child = os.fork()
            if not child:
                torch.set_num_threads(1)
                # It says so by how it ends.
                os._exit(0 if torch.equal(states(text_batch.batch), before) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_slots_that_are_not_there_are_refused(self, precision: NativePrecision) -> None:
        states = NativeEncoder(encoder("bert"), precision)
        for lengths in ([6, 6], [6, 5]):
            (text_batch,) = laid(lengths)
            tokens = sum(lengths)
            for slot in (tokens, 1 << 40, -tokens - 1):
                with pytest.raises(IndexError):
                    states(text_batch.batch, torch.tensor([0, slot]))
            assert torch.equal(states(text_batch.batch, torch.tensor([-tokens])), states(text_batch.batch)[:1])

    @pytest.mark.parametrize("name", ["bert", "roberta", "albert", "distilbert"])
    def test_embeddings_that_are_not_there_are_refused(self, precision: NativePrecision, name: str) -> None:
        states, most = NativeEncoder(encoder(name), precision), 1 << 62
        batch = flat([5, 6, 7], [0, 0, 0], None)
        right = states(batch)
        for field in ("ids", "position_ids"):
            for number in (-3, WORDS, -most, most):
                wrong = replace(batch, **{field: torch.tensor([1, number, 0])})
                with pytest.raises(IndexError):
                    states(wrong)
        if name in ("bert", "albert"):
            with pytest.raises(IndexError):
                states(replace(batch, segment_ids=torch.tensor([0, 2, 0])))
        assert torch.equal(states(batch), right)

    @pytest.mark.parametrize("name", ["bert", "roberta", "albert", "distilbert"])
    def test_embeddings_are_used_as_they_are_and_added_as_by_the_module(
        self, precision: NativePrecision, name: str
    ) -> None:
        module = make_encoder(**SHAPES[name])
        states, batch = NativeEncoder(module, precision), flat([5, 6, 7], [0, 0, 1])
        batch = replace(batch, position_ids=torch.tensor([0, 1, 0]), segment_ids=torch.tensor([0, 1, 1]))
        if name == "roberta":  # Its only segment is every token's, whatever its number.
            assert torch.equal(states(batch), states(replace(batch, segment_ids=torch.zeros(3, dtype=torch.int64))))
        for _ in range(2):
            states._layout.layers = 0  # What is left is what the first layer gets.
            found = states(batch)
            with torch.inference_mode():
                assert torch.equal(found[:3], Embedding(module)(batch)[:3])
            with torch.no_grad():
                module.word_embeddings.weight[6] += 1
                module.position_embeddings.weight.mul_(2)

    def test_nothing_in_gives_nothing(self, precision: NativePrecision) -> None:
        states = NativeEncoder(encoder("bert"), precision)
        none = torch.tensor([], dtype=torch.int64)
        (text_batch,) = laid([6, 5])
        assert states(text_batch.batch, none).shape == (0, 64)
        assert states(flat([], [], None)).shape == (0, 64)
        assert states(flat([], [], None), none).shape == (0, 64)

    def test_what_is_no_number_stays_in_its_text(self, precision: NativePrecision) -> None:
        module = make_encoder(hidden_activation="relu")
        with torch.no_grad():
            module.word_embeddings.weight[7] = torch.nan
        batch = flat([5, 6, 7, 8, 9, 10, 11, 12], [0, 0, 1, 1, 1, 2, 2, 2], 8)
        found = NativeEncoder(module, precision)(batch)
        assert found[2:5].isnan().all()
        assert found[[0, 1, 5, 6, 7]].isfinite().all()

    def test_types_and_devices_that_pytorch_takes_by_itself_change_nothing(self, precision: NativePrecision) -> None:
        states = NativeEncoder(encoder("bert"), precision)
        (text_batch,) = laid([9, 4])
        before = states(text_batch.batch)
        try:
            torch.set_default_dtype(torch.float16)
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(states(text_batch.batch), before)
            torch.set_default_dtype(torch.float64)
            assert torch.equal(states(text_batch.batch), before)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_weights_are_kept_as_they_were(self, precision: NativePrecision) -> None:
        module = make_encoder()
        states = NativeEncoder(module, precision)
        (text_batch,) = laid([9, 4])
        before = states(text_batch.batch)
        with torch.no_grad():
            for parameter in [*module.attention_blocks.parameters(), *module.ffn_blocks.parameters()]:
                parameter.zero_()
        assert torch.equal(states(text_batch.batch), before)

    def test_a_shared_block_is_laid_out_once(self, precision: NativePrecision) -> None:
        def blocks(name: str) -> list[int]:
            attention, ffn, _, _ = NativeEncoder(encoder(name), precision)._kept
            return [len(attention), len(ffn)]

        assert blocks("albert") == [2, 2]
        assert blocks("bert") == [3, 3]
        assert blocks("a plan of its own") == [2, 2]

    @pytest.mark.parametrize(
        "shape",
        [
            {"hidden_size": 16, "num_heads": 1, "intermediate_size": 16},
            {"hidden_size": 48, "num_heads": 3, "intermediate_size": 16},
            {"hidden_size": 80, "num_heads": 1, "intermediate_size": 336, "num_layers": 1},
            {"hidden_size": 128, "num_heads": 2, "intermediate_size": 48, "max_positions": 130},
        ],
    )
    def test_it_takes_every_width_in_sixteens(self, precision: NativePrecision, shape: dict[str, int]) -> None:
        module = make_encoder(**shape)
        assert takes(module.config, precision)
        sequences = [np.arange(length) % WORDS for length in (module.config.max_positions, 17, 8, 1)]
        (text_batch,) = batches(sequences, tokens=1000, device=CPU)
        batch = text_batch.batch
        with torch.no_grad():
            wanted = module(batch).hidden
        found = NativeEncoder(module, precision)
        assert_near(found(batch), wanted, precision)
        read = torch.tensor([batch.num_tokens - 1, 0])
        assert torch.equal(found(batch, read), found(batch)[read])

    @pytest.mark.parametrize("odd", [{"num_heads": 8}, {"intermediate_size": 100}, {"hidden_size": 72, "num_heads": 1}])
    def test_shapes_it_does_not_take_are_left_to_the_libraries(
        self, precision: NativePrecision, odd: dict[str, int]
    ) -> None:
        config = EncoderConfig(**{"hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "num_layers": 1, **odd})
        assert not takes(config, precision)
        module = Encoder(config, WORDS).eval()
        states = states_of(module, precision)
        assert isinstance(states, PackedEncoder)
        (text_batch,) = laid([5, 9])
        with torch.no_grad():
            wanted = module(text_batch.batch).hidden
        assert_near(states(text_batch.batch), wanted, precision)
