import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.kernels.dropout import (
    DropoutKey,
    dropout,
    dropout_add,
    dropout_factors,
    kept_of_signed,
    random_bits,
    sign_dropped_,
)

KEY = DropoutKey.on(torch.device("cpu"), 20190524)
RATE = round(0.1 * 2**16) / 2**16
GOLDEN_BITS = [-25471, 17361, -13548, -29500, 10748, 277, -12402, 11199, -9554]
GOLDEN_SUM = 674_372_932


def _standard(bits: torch.Tensor) -> torch.Tensor:
    """Dropped or not, as numbers of mean 0 and variance 1."""
    threshold = round(0.1 * 2**16) - 2**15
    return ((bits < threshold).double() - RATE) / math.sqrt(RATE * (1 - RATE))


def _z(products: torch.Tensor) -> float:
    return abs(products.mean().item()) * math.sqrt(products.numel())


def test_dropout_drops_the_exact_rate_and_keeps_the_expectation():
    size = 1 << 22
    dropped = dropout(torch.ones(size), 0.1, KEY, 0)
    share = (dropped == 0).double().mean().item()
    assert abs(share - RATE) < 4 * math.sqrt(RATE * (1 - RATE) / size)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - RATE)])
    assert abs(dropped.double().mean().item() - 1) < 1e-3


def test_same_key_and_call_give_the_same_mask_and_others_give_independent_ones():
    shape = torch.Size((1 << 20,))
    masks = [_standard(random_bits(shape, KEY, call)) for call in range(6)]
    masks += [
        _standard(random_bits(shape, DropoutKey.on(torch.device("cpu"), KEY.number + 1 + k), 0)) for k in range(3)
    ]
    assert torch.equal(masks[0], _standard(random_bits(shape, KEY, 0)))
    for first, second in itertools.combinations(masks, 2):
        assert _z(first * second) < 4.5


def test_random_bits_are_uniform_in_every_lane():
    words = random_bits(torch.Size((1 << 21, 4)), KEY, 3).long() + 2**15
    expected = (1 << 21) / 2**16
    for lane in range(4):
        counts = torch.bincount(words[:, lane], minlength=2**16).double()
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(chi_square - (2**16 - 1)) / math.sqrt(2 * (2**16 - 1)) < 4.5


@pytest.mark.parametrize("call", [0, 7])
def test_random_bits_show_no_structure_of_the_table_they_are_made_from(call):
    rows, columns = 2048, 512
    table = _standard(random_bits(torch.Size((rows, columns, 4)), KEY, call))
    flat = table.flatten()
    for lag in (1, 2, 3, 4, 5, 8, 64, 128, 2048, 4096, 65536):
        assert _z(flat[:-lag] * flat[lag:]) < 4.5, lag
    for down, right in ((1, 1), (2, 1), (1, 2), (7, 5), (512, 256)):
        top, bottom = table[:-down], table[down:]
        rectangles = top[:, :-right] * top[:, right:] * bottom[:, :-right] * bottom[:, right:]
        assert _z(rectangles) < 4.5, (down, right)
    row_means, column_means = table.mean(1) * math.sqrt(columns), table.mean(0) * math.sqrt(rows)
    assert abs(row_means.var().item() - 1) < 4.5 * math.sqrt(2 / row_means.numel())
    assert abs(column_means.var().item() - 1) < 4.5 * math.sqrt(2 / column_means.numel())


@settings(deadline=None, max_examples=25)
@given(
    rate=st.floats(0.01, 0.99),
    call=st.integers(0, 10_000),
    number=st.integers(0, 2**63 - 1),
    rows=st.integers(0, 9),
    columns=st.integers(1, 9),
)
def test_dropout_is_multiplication_by_its_factors_forward_and_backward(rate, call, number, rows, columns):
    key = DropoutKey.on(torch.device("cpu"), number)
    values = torch.randn(rows, columns, requires_grad=True)
    residual = torch.randn(rows, columns, requires_grad=True)
    factors = dropout_factors(values.shape, rate, key, call)
    gradient = torch.randn(rows, columns)
    dropped, added = dropout(values, rate, key, call), dropout_add(values, residual, rate, key, call)
    torch.testing.assert_close(dropped, values * factors)
    torch.testing.assert_close(added, residual + values * factors)
    torch.testing.assert_close(torch.autograd.grad(dropped, values, gradient)[0], gradient * factors)
    through, beside = torch.autograd.grad(added, (values, residual), gradient)
    torch.testing.assert_close(through, gradient * factors)
    torch.testing.assert_close(beside, gradient)


def test_dropout_without_key_or_rate_is_the_identity_itself():
    values = torch.randn(3, 4)
    assert dropout(values, 0.5, None, 0) is values
    assert dropout(values, 0.0, KEY, 0) is values
    torch.testing.assert_close(dropout_add(values, values, 0.5, None, 0), 2 * values)


def test_dropout_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    dropout(torch.ones(100), 0.5, KEY, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_add_keeps_the_precision_of_residual_and_gradient():
    values = torch.randn(8, 8, dtype=torch.bfloat16, requires_grad=True)
    residual = torch.randn(8, 8, requires_grad=True)
    added = dropout_add(values, residual, 0.3, KEY, 1)
    added.sum().backward()
    assert added.dtype == torch.float32
    assert values.grad is not None
    assert values.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_signed_values_say_whole_and_dropped_form_exactly(dtype):
    values = torch.rand(7, 300).to(dtype)
    values[values < 0.1] = 0
    signed = values.clone()
    scale = sign_dropped_(signed, 0.1, KEY, 4)
    factors = dropout_factors(values.shape, 0.1, KEY, 4)
    assert factors.max().item() == pytest.approx(scale) == 1 / (1 - RATE)
    assert torch.equal(signed.signbit(), factors == 0)
    assert torch.equal(signed.abs(), values)
    assert torch.equal(kept_of_signed(signed), values * (factors > 0))
    assert torch.equal(signed.abs(), values)


def test_no_value_is_signed_at_a_rate_that_rounds_to_nothing():
    values = torch.rand(100)
    signed = values.clone()
    assert sign_dropped_(signed, 1e-6, KEY, 0) == 1
    assert torch.equal(signed, values)
    assert torch.equal(kept_of_signed(signed), values)


def test_random_bits_are_those_of_every_run_before():
    bits = random_bits(torch.Size((3, 1000)), KEY, 5).flatten()
    assert bits[[0, 1, 2, 3, 4, 1999, 2047, 2048, 2999]].tolist() == GOLDEN_BITS
    assert int((bits.long() * torch.arange(1, 3001)).sum()) == GOLDEN_SUM


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_values_are_rounded_once(dtype):
    values = torch.randn(50, 70).to(dtype).requires_grad_()
    factors = dropout_factors(values.shape, 0.1, KEY, 6).double()
    dropped = dropout(values, 0.1, KEY, 6)
    expected = (values.detach().float() * factors.float()).to(dtype)
    assert dropped.dtype == dtype
    assert torch.equal(dropped, expected)
    (gradient,) = torch.autograd.grad(dropped, values, values.detach())
    assert torch.equal(gradient, expected)
