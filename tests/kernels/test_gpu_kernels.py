"""Triton kernels of attention and LayerNorm against PyTorch: on a GPU, or in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor, nn

from maskwright.kernels import ops
from maskwright.kernels.cuda.attention import _short_attention, mask_stride
from maskwright.kernels.cuda.norm import _norm
from maskwright.kernels.dropout import DropoutKey, DropoutMask, kernel_arguments
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import use_kernels
from tests.kernels.padded_attention import padded_attention

INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
# The interpreter of 3.6 fails with NumPy 2.4.
pytest.importorskip("triton", minversion="3.7" if INTERPRETS else None)

DEVICE = torch.device("cpu" if INTERPRETS else "cuda")
# The interpreter multiplies bf16 matrices as if they were integers.
DTYPE, TOLERANCE = (torch.float32, 5e-5) if INTERPRETS else (torch.bfloat16, 0.02)
# A compiler may translate one size wrongly (LOG.md, "first training on a GPU"); the interpreter has none.
HEAD_SIZES, WIDTHS = ([16], [48, 128]) if INTERPRETS else ([16, 32, 64, 128], [48, 128, 768])

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (INTERPRETS or torch.cuda.is_available()), reason="needs a GPU, or Triton's interpreter"),
]


def mask_of(rate: float) -> DropoutMask | None:
    return DropoutKey(7, DEVICE).mask(3, rate)


def assert_near(actual: Tensor, expected: Tensor) -> None:
    actual, expected = actual.detach().float(), expected.detach().float()
    assert (actual - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("lengths", [[33, 1, 0, 2], [70, 2]], ids=str)
@pytest.mark.parametrize("window", [0, 1, 20])
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_attention_and_its_gradients_are_those_of_pytorch(lengths, rate, head_size, window):
    torch.manual_seed(0)
    num_heads, bounds = 2, torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=DEVICE)
    width = num_heads * head_size
    inputs = [torch.randn(sum(lengths), width, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(3)]
    mask, longest = mask_of(rate), max(lengths)
    count = len(lengths) * num_heads * mask_stride(longest) ** 2
    actual, _ = _short_attention(*inputs, bounds, num_heads, longest, *kernel_arguments(mask, count), window)
    expected = padded_attention(*inputs, Sequences(bounds, longest), num_heads, mask, window or None)
    assert_near(actual, expected)
    grad = torch.randn_like(actual)
    for actual_grad, other in zip(
        torch.autograd.grad(actual, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        assert_near(actual_grad, other)


def test_attention_is_registered_as_pytorch_requires() -> None:
    inputs = [torch.randn(5, 16, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(3)]
    bounds = torch.tensor([0, 2, 5], dtype=torch.int32, device=DEVICE)
    arguments = (*inputs, bounds, 1, 3, *kernel_arguments(mask_of(0.1), 2 * 16), 0)
    torch.library.opcheck(_short_attention, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("width", WIDTHS)
def test_norm_and_its_gradients_are_those_of_pytorch(width: int, rate: float) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(width, eps=1e-5, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    inputs = [torch.randn(70, width, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(2)]
    mask = mask_of(rate)
    arguments = (*inputs, norm.weight, norm.bias, norm.eps)
    actual, _, _ = _norm(*arguments, *kernel_arguments(mask, inputs[0].numel()))
    with use_kernels(False):
        expected = ops.dropout_add_norm(*(each.float() for each in inputs), norm, mask)
    assert_near(actual, expected)
    grad = torch.randn_like(expected)
    leaves = [*inputs, norm.weight, norm.bias]
    for actual_grad, other in zip(
        torch.autograd.grad(actual, leaves, grad.to(actual.dtype)),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):
        assert actual_grad.dtype == other.dtype
        assert_near(actual_grad, other)


def test_norm_is_registered_as_pytorch_requires() -> None:
    values = [torch.randn(3, 16, device=DEVICE, dtype=DTYPE, requires_grad=True) for _ in range(2)]
    parameters = [torch.ones(16, device=DEVICE, requires_grad=True) for _ in range(2)]
    arguments = (*values, *parameters, 1e-5, *kernel_arguments(mask_of(0.1), 48))
    torch.library.opcheck(_norm, arguments, test_utils=("test_schema", "test_faketensor"))
