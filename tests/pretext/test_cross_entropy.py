"""The blocked cross entropy equals the plain one, forwards and backwards."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from maskwright.pretext.objectives.cross_entropy import summed_cross_entropy


def inputs(m: int, v: int, e: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(m + v + e)
    features, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in ((m, e), (v, e), (v,))
    )
    return features, weight, bias, torch.randint(v, (m,), generator=generator)


@pytest.mark.parametrize("block_elements", [1, 37, 37 * 4, 37 * 11, 1 << 25])
def test_blocks_equal_the_plain_computation(block_elements: int) -> None:
    features, weight, bias, labels = inputs(11, 37, 8, torch.float64)
    total, correct, _ = summed_cross_entropy(features, weight, bias, labels, block_elements)
    logits = linear(features, weight, bias)
    expected = cross_entropy(logits, labels, reduction="sum")
    assert torch.allclose(total, expected, rtol=1e-12)
    assert int(correct) == int((logits.argmax(dim=1) == labels).sum())
    ours = torch.autograd.grad(3 * total, (features, weight, bias))
    plain = torch.autograd.grad(3 * expected, (features, weight, bias))
    for mine, other in zip(ours, plain, strict=True):
        assert torch.allclose(mine, other, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    features, weight, bias, labels = inputs(5, 7, 3, torch.float64)
    assert torch.autograd.gradcheck(
        lambda *leaves: summed_cross_entropy(*leaves, labels, block_elements=14)[0], (features, weight, bias)
    )


def test_no_targets_give_a_zero_loss_that_can_be_trained_on() -> None:
    features, weight, bias, labels = inputs(0, 7, 3, torch.float32)
    total, correct, _ = summed_cross_entropy(features, weight, bias, labels)
    assert total.item() == 0
    assert correct.item() == 0
    total.backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_without_gradients_the_loss_is_the_same() -> None:
    features, weight, bias, labels = inputs(9, 50, 4, torch.float32)
    with torch.no_grad():
        total, _, _ = summed_cross_entropy(features, weight, bias, labels)
    assert not total.requires_grad
    assert total.item() == summed_cross_entropy(features, weight, bias, labels)[0].item()


def test_autocast_multiplies_in_bfloat16_and_sums_in_float32() -> None:
    features, weight, bias, labels = inputs(64, 100, 16, torch.float32)
    exact = torch.autograd.grad(summed_cross_entropy(features, weight, bias, labels)[0], (features, weight, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _, _ = summed_cross_entropy(features, weight, bias, labels, block_elements=1000)
        plain = cross_entropy(linear(features, weight, bias).float(), labels, reduction="sum")
    assert total.dtype == torch.float32
    assert torch.allclose(total, plain, rtol=1e-5)
    for rough, fine in zip(torch.autograd.grad(total, (features, weight, bias)), exact, strict=True):
        assert rough.dtype == torch.float32
        assert (rough - fine).norm() < 0.02 * fine.norm()


def test_extreme_logits_stay_finite() -> None:
    features = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    weight, bias = torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.zeros(2, requires_grad=True)
    total, correct, _ = summed_cross_entropy(features, weight, bias, torch.tensor([0, 0]))
    assert total.item() == 2000
    assert correct.item() == 1
    total.backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
