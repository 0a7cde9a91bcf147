"""Gradients by finite differences, for losses that allow one backward pass only (`gradcheck` wants several)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def assert_gradients_are_those_of_differences(loss: Callable[..., Tensor], leaves: Sequence[Tensor]) -> None:
    """Compare the gradients of a scalar with central differences, entry by entry.

    Args:
        loss: Of the leaves.
        leaves: In fp64, with gradient.
    """
    step = 1e-6
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    for number, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
        for index in range(leaf.numel()):
            moved = []
            for sign in (1, -1):
                others = [each.detach().clone() for each in leaves]
                others[number].view(-1)[index] += sign * step
                moved.append(float(loss(*others)))
            assert abs((moved[0] - moved[1]) / (2 * step) - float(gradient.reshape(-1)[index])) < 1e-7
