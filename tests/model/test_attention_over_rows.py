import math

import pytest
import torch
from flat_batches import packed
from torch.autograd.graph import saved_tensors_hooks

from maskwright.kernels.attention import attend, plan_attention
from maskwright.kernels.dropout import DropoutKey, dropout_factors

HEADS, WIDTH, ROW = 3, 12, 6
KEY = DropoutKey.on(torch.device("cpu"), 20170612)
MASKED, UNMASKED = (6, 4, 2), (6, 6)


def _inputs(dtype=torch.float32, scale=1.0):
    draws = torch.Generator().manual_seed(3)
    return [
        (torch.randn(2 * ROW, WIDTH, generator=draws, dtype=torch.float64) * scale).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def _attend(inputs, rows, rate=0.0, backend="rows", dtype=None):
    plan = plan_attention(packed(rows, ROW), backend, dtype or inputs[0].dtype)
    return attend(*inputs, plan, num_heads=HEADS, dropout_rate=rate, dropout_key=KEY if rate else None, dropout_call=2)


def _plainly(inputs, rows, rate):
    """Attention of row after row and head after head, from the formula."""
    queries, keys, values = inputs
    shape = torch.Size((2, HEADS, ROW, ROW))
    factors = dropout_factors(shape, rate, KEY, 2).to(queries.dtype) if rate else torch.ones(shape).to(queries.dtype)
    lengths = torch.tensor(rows)
    sequences = torch.repeat_interleave(torch.arange(len(lengths)), lengths).view(2, ROW)
    size = WIDTH // HEADS
    rows_mixed = []
    for row in range(2):
        tokens = slice(row * ROW, (row + 1) * ROW)
        apart = sequences[row][:, None] != sequences[row][None]
        heads_mixed = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = queries[tokens, part] @ keys[tokens, part].T / math.sqrt(size)
            probabilities = scores.masked_fill(apart, -math.inf).softmax(-1) * factors[row, head]
            heads_mixed.append(probabilities @ values[tokens, part])
        rows_mixed.append(torch.cat(heads_mixed, dim=1))
    return torch.cat(rows_mixed)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("rows", [MASKED, UNMASKED], ids=["mask", "no mask"])
class TestRows:
    def test_attention_and_its_gradients_are_those_of_the_formula(self, rows, rate):
        inputs = _inputs(torch.float64)
        slope = torch.randn(2 * ROW, WIDTH, dtype=torch.float64)
        found, expected = _attend(inputs, rows, rate), _plainly(inputs, rows, rate)
        torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)
        gradients = torch.autograd.grad(expected, inputs, slope)
        for gradient, wanted in zip(torch.autograd.grad(found, inputs, slope), gradients, strict=True):
            torch.testing.assert_close(gradient, wanted, atol=1e-7, rtol=1e-7)

    def test_gradients_are_those_of_finite_differences(self, rows, rate):
        inputs = tuple(_inputs(torch.float64))
        assert torch.autograd.gradcheck(lambda *tensors: _attend(tensors, rows, rate), inputs, fast_mode=True)

    def test_every_choice_of_inputs_gets_the_gradients_that_all_get(self, rows, rate):
        inputs = _inputs()
        slope = torch.randn(2 * ROW, WIDTH)
        expected = torch.autograd.grad(_attend(inputs, rows, rate), inputs, slope)
        for choice in range(1, 8):
            chosen = [bool(choice >> place & 1) for place in range(3)]
            some = [tensor.detach().requires_grad_(wanted) for tensor, wanted in zip(inputs, chosen, strict=True)]
            _attend(some, rows, rate).backward(slope)
            for tensor, wanted, gradient in zip(some, chosen, expected, strict=True):
                assert torch.equal(tensor.grad, gradient) if wanted else tensor.grad is None

    def test_a_retained_graph_gives_the_same_gradients_again(self, rows, rate):
        inputs = _inputs()
        mixed = _attend(inputs, rows, rate)
        first = torch.autograd.grad(mixed.sum(), inputs, retain_graph=True)
        for gradient, again in zip(first, torch.autograd.grad(mixed.sum(), inputs), strict=True):
            assert torch.equal(gradient, again)

    def test_one_block_of_probabilities_is_kept_beside_the_heads(self, rows, rate):
        kept = []
        with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
            _attend(_inputs(), rows, rate)
        assert sorted(tensor.nbytes for tensor in kept) == sorted([4 * 2 * HEADS * ROW**2] + [4 * 2 * ROW * WIDTH] * 3)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_nothing_is_kept_where_no_gradient_is_wanted(self, rows, rate, mode):
        inputs, kept = _inputs(), []
        expected = _attend(inputs, rows, rate)
        with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
            with mode():
                mixed = _attend(inputs, rows, rate)
            frozen = _attend([tensor.detach() for tensor in inputs], rows, rate)
        assert not kept
        assert not mixed.requires_grad
        assert not frozen.requires_grad
        assert torch.equal(mixed, expected)
        assert torch.equal(frozen, expected)

    def test_autocast_halves_the_products_and_leaves_gradients_in_the_precision_of_the_inputs(self, rows, rate):
        inputs, slope = _inputs(), torch.randn(2 * ROW, WIDTH)
        halves = _inputs(torch.bfloat16)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = _attend(inputs, rows, rate, dtype=torch.bfloat16)
        by_hand = _attend(halves, rows, rate)
        assert mixed.dtype == by_hand.dtype == torch.bfloat16
        assert torch.equal(mixed, by_hand)
        gradients = torch.autograd.grad(mixed, inputs, slope.bfloat16())
        for gradient, wanted in zip(gradients, torch.autograd.grad(by_hand, halves, slope.bfloat16()), strict=True):
            assert gradient.dtype == torch.float32
            assert torch.equal(gradient, wanted.float())

    def test_half_precision_stays_near_the_formula(self, rows, rate):
        halves = _inputs(torch.bfloat16)
        exact = [tensor.detach().double().requires_grad_() for tensor in halves]
        slope = torch.randn(2 * ROW, WIDTH).bfloat16()
        found, expected = _attend(halves, rows, rate), _plainly(exact, rows, rate)
        gradients = torch.autograd.grad(found, halves, slope)
        wanted = torch.autograd.grad(expected, exact, slope.double())
        for half, whole in zip((found, *gradients), (expected, *wanted), strict=True):
            # Numbers of 8 bits: a handful of roundings of 2**-9 each.
            assert (half.double() - whole).norm() < 2**-6 * whole.norm()


def test_rows_drop_the_same_in_every_precision():
    values = torch.ones(2 * ROW, WIDTH)
    found = []
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        queries, keys, _ = _inputs(dtype, scale=0.0)
        found.append(_attend([queries, keys, values.to(dtype)], UNMASKED, 0.4).double())
    # All probabilities are 1/R: what is mixed counts those that are kept.
    kept = (dropout_factors(torch.Size((2, HEADS, ROW, ROW)), 0.4, KEY, 2) > 0).sum(-1)
    counted = kept.transpose(1, 2).reshape(2 * ROW, HEADS).repeat_interleave(WIDTH // HEADS, dim=1)
    assert len(counted.unique()) > 3
    for mixed in found:
        assert torch.equal((mixed * 0.6 * ROW).round().long(), counted)


def test_rows_refuse_to_be_differentiated_twice():
    inputs = _inputs()
    (gradient,) = torch.autograd.grad(_attend(inputs, MASKED, 0.4).square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
