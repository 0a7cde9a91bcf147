"""GELU's tanh form equals PyTorch's, in value and gradient."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.kernels.activations import gelu_tanh

ULP = 2.0**-23
"""Of fp32, at 1."""


def _plain(values: Tensor) -> Tensor:
    return F.gelu(values, approximate="tanh")


def _with_gradient(function, values: Tensor) -> tuple[Tensor, Tensor]:
    leaf = values.clone().requires_grad_()
    result = function(leaf)
    result.backward(torch.ones_like(result))
    return result.detach(), leaf.grad


def test_gelu_tanh_is_pytorch_s_to_fp32_rounding():
    values = torch.linspace(-12, 12, 300_001)  # More than one block.
    scale = values.double().abs().clamp(min=1)
    exact = _with_gradient(_plain, values.double())
    for made, wanted, ulps in zip(_with_gradient(gelu_tanh, values), exact, (2, 4), strict=True):
        assert made.dtype == torch.float32
        assert ((made.double() - wanted).abs() / scale).max() <= ulps * ULP
    assert torch.equal(gelu_tanh(values), _with_gradient(gelu_tanh, values)[0])


def test_gelu_tanh_is_pytorch_s_in_double_precision():
    values = torch.linspace(-12, 12, 10_001, dtype=torch.float64)
    for made, wanted in zip(_with_gradient(gelu_tanh, values), _with_gradient(_plain, values), strict=True):
        assert (made - wanted).abs().max() < 2e-14
    few = torch.linspace(-5, 5, 23, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(gelu_tanh, few)


def test_gelu_tanh_of_bf16_is_the_rounded_fp32_result():
    values = torch.linspace(-12, 12, 5_001).bfloat16()
    rounded = _with_gradient(gelu_tanh, values.float())
    for made, wanted in zip(_with_gradient(gelu_tanh, values), rounded, strict=True):
        assert made.dtype == torch.bfloat16
        assert torch.equal(made, wanted.bfloat16())


def test_gelu_tanh_far_out_is_the_identity_or_zero():
    values = torch.tensor([1e2, -1e2, 1e6, -1e6, 1e12, -1e12, 0.0])
    result, gradient = _with_gradient(gelu_tanh, values)
    assert result.tolist() == pytest.approx(values.clamp(min=0).tolist())
    assert gradient.tolist() == [1, 0, 1, 0, 1, 0, 0.5]


def test_gelu_tanh_takes_any_layout_and_size():
    wide = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    for values in (wide.t(), wide[:, 3:7], wide[0, 0], wide[:0]):
        for made, wanted in zip(_with_gradient(gelu_tanh, values), _with_gradient(_plain, values), strict=True):
            assert made.shape == values.shape
            torch.testing.assert_close(made, wanted, rtol=1e-6, atol=1e-6)
    leaf = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
    gelu_tanh(leaf.t()).square().sum().backward()
    (wanted,) = torch.autograd.grad(_plain(leaf.t()).square().sum(), leaf)
    torch.testing.assert_close(leaf.grad, wanted, rtol=1e-5, atol=1e-6)
