"""Keyed dropout: exact rates, independent masks, bits without structure, and the bits of every earlier run."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.kernels.dropout import DropoutKey, DropoutMask, dropout, dropout_add

CPU = torch.device("cpu")
NUMBER = 20190524
RATE = round(0.1 * 2**16) / 2**16
GOLDEN_BITS = [-25471, 17361, -13548, -29500, 10748, 277, -12402, 11199, -9554]
GOLDEN_SUM = 674_372_932


def mask_of(site: int, rate: float = 0.1, number: int = NUMBER, num_sites: int = 0) -> DropoutMask:
    mask = DropoutKey(number, CPU, num_sites).mask(site, rate)
    assert mask is not None
    return mask


def standardized(bits: torch.Tensor) -> torch.Tensor:
    """Dropped or not, as numbers of mean 0 and variance 1."""
    return ((bits < round(0.1 * 2**16) - 2**15).double() - RATE) / math.sqrt(RATE * (1 - RATE))


def z_score(products: torch.Tensor) -> float:
    return abs(products.mean().item()) * math.sqrt(products.numel())


def test_dropout_drops_the_exact_rate_and_keeps_the_expectation() -> None:
    size = 1 << 22
    dropped = dropout(torch.ones(size), mask_of(0))
    share = (dropped == 0).double().mean().item()
    assert abs(share - RATE) < 4 * math.sqrt(RATE * (1 - RATE) / size)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - RATE)])
    assert abs(dropped.double().mean().item() - 1) < 1e-3


def test_same_key_and_site_give_the_same_mask_and_others_independent_ones() -> None:
    shape = (1 << 20,)
    masks = [standardized(mask_of(site).random_bits(shape)) for site in range(6)]
    masks += [standardized(mask_of(0, number=NUMBER + 1 + k).random_bits(shape)) for k in range(3)]
    assert torch.equal(masks[0], standardized(mask_of(0).random_bits(shape)))
    for first, second in itertools.combinations(masks, 2):
        assert z_score(first * second) < 4.5


def test_random_bits_are_uniform_in_every_lane() -> None:
    words = mask_of(3).random_bits((1 << 21, 4)).long() + 2**15
    expected = (1 << 21) / 2**16
    for lane in range(4):
        counts = torch.bincount(words[:, lane], minlength=2**16).double()
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert abs(chi_square - (2**16 - 1)) / math.sqrt(2 * (2**16 - 1)) < 4.5


@pytest.mark.parametrize("site", [0, 7])
def test_random_bits_show_no_structure_of_their_table(site: int) -> None:
    rows, columns = 2048, 512
    table = standardized(mask_of(site).random_bits((rows, columns, 4)))
    flat = table.flatten()
    for lag in (1, 2, 3, 4, 5, 8, 64, 128, 2048, 4096, 65536):
        assert z_score(flat[:-lag] * flat[lag:]) < 4.5, lag
    for down, right in ((1, 1), (2, 1), (1, 2), (7, 5), (512, 256)):
        top, bottom = table[:-down], table[down:]
        rectangles = top[:, :-right] * top[:, right:] * bottom[:, :-right] * bottom[:, right:]
        assert z_score(rectangles) < 4.5, (down, right)
    row_means, column_means = table.mean(1) * math.sqrt(columns), table.mean(0) * math.sqrt(rows)
    assert abs(row_means.var().item() - 1) < 4.5 * math.sqrt(2 / row_means.numel())
    assert abs(column_means.var().item() - 1) < 4.5 * math.sqrt(2 / column_means.numel())


def test_random_bits_are_those_of_every_earlier_run() -> None:
    bits = mask_of(5).random_bits((3, 1000)).flatten()
    assert bits[[0, 1, 2, 3, 4, 1999, 2047, 2048, 2999]].tolist() == GOLDEN_BITS
    assert int((bits.long() * torch.arange(1, 3001)).sum()) == GOLDEN_SUM


@given(number=st.integers(0, 2**63 - 1), site=st.integers(0, 9), count=st.integers(1, 9000), more=st.integers(0, 9000))
def test_bits_depend_neither_on_how_many_follow_nor_on_how_many_sites_are_prepared(number, site, count, more):
    few, many = mask_of(site, number=number), mask_of(site, number=number, num_sites=10)
    assert torch.equal(few.random_bits((count,)), many.random_bits((count + more,))[:count])
    key = DropoutKey(torch.tensor(number), CPU)  # As in CUDA graphs.
    tensor_mask = key.mask(site, 0.1)
    assert torch.equal(tensor_mask.random_bits((count,)), few.random_bits((count,)))


@settings(max_examples=25)
@given(
    rate=st.floats(0.01, 0.99),
    site=st.integers(0, 10_000),
    number=st.integers(0, 2**63 - 1),
    rows=st.integers(0, 9),
    columns=st.integers(1, 9),
)
def test_dropout_multiplies_by_its_factors_forward_and_backward(rate, site, number, rows, columns):
    mask = mask_of(site, rate, number)
    values, residual = (torch.randn(rows, columns, requires_grad=True) for _ in range(2))
    factors, gradient = mask.factors(values.shape), torch.randn(rows, columns)
    dropped, added = dropout(values, mask), dropout_add(values, residual, mask)
    torch.testing.assert_close(dropped, values * factors)
    torch.testing.assert_close(added, residual + values * factors)
    torch.testing.assert_close(torch.autograd.grad(dropped, values, gradient)[0], gradient * factors)
    through, beside = torch.autograd.grad(added, (values, residual), gradient)
    torch.testing.assert_close(through, gradient * factors)
    torch.testing.assert_close(beside, gradient)


def test_kernels_that_sample_masks_need_a_key_on_the_host() -> None:
    mask = DropoutKey(torch.tensor(NUMBER), CPU).mask(0, 0.1)
    with pytest.raises(AssertionError, match="CUDA graph"):
        _ = mask.seed
    assert mask_of(0).seed != mask_of(1).seed


def test_without_key_or_rate_nothing_is_dropped() -> None:
    values = torch.randn(3, 4)
    assert DropoutKey(None, CPU).mask(0, 0.5) is None
    assert DropoutKey(1, CPU).mask(0, 1e-6) is None  # Rounds to 0.
    assert dropout(torch.ones(1 << 18), mask_of(0, 0.9999999)).isfinite().all()  # Rounds to less than 1.
    assert dropout(values, None) is values
    torch.testing.assert_close(dropout_add(values, values, None), 2 * values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_values_are_rounded_once_and_sums_keep_the_precision_of_the_residual(dtype: torch.dtype) -> None:
    values = torch.randn(50, 70).to(dtype).requires_grad_()
    mask = mask_of(6)
    expected = (values.detach().float() * mask.factors(values.shape)).to(dtype)
    dropped = dropout(values, mask)
    assert dropped.dtype == dtype
    assert torch.equal(dropped, expected)
    (gradient,) = torch.autograd.grad(dropped, values, values.detach())
    assert torch.equal(gradient, expected)
    added = dropout_add(values, torch.randn(50, 70), mask)
    assert added.dtype == torch.float32
    assert torch.autograd.grad(added.sum(), values)[0].dtype == dtype
