"""A comparison of two ways to compute one thing, backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor


def assert_same_values(actual: Tensor, expected: Tensor, leaves: Sequence[Tensor], tolerance: float) -> None:
    """Check that two results and their gradients are the same."""
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
    assert_same_gradients(actual, expected, leaves, atol=tolerance, rtol=tolerance)


def assert_same_gradients(actual: Tensor, expected: Tensor, leaves: Sequence[Tensor], **tolerance: float) -> None:
    """Check that two results have the same gradients, for one random gradient of both."""
    grad = torch.randn(actual.shape, generator=torch.Generator().manual_seed(1)).to(actual)
    both = (torch.autograd.grad(result, list(leaves), grad) for result in (actual, expected))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, **tolerance)
