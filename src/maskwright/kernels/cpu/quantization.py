"""Weights as whole numbers of 8 bits, one step an output."""

from typing import NamedTuple

from torch import Tensor

_HIGHEST = 127
"""-128 is not used, so that both signs reach equally far."""
_SMALLEST = 1e-30


class WholeNumbers(NamedTuple):
    """A matrix, rounded.

    Attributes:
        whole: Whole numbers from -127 to 127, in fp32. Shape (O, I).
        steps: What one is worth, by output. Shape (O,).
    """

    whole: Tensor
    steps: Tensor

    @property
    def sums(self) -> Tensor:
        """What the weights of each output add up to. Shape (O,)."""
        return self.whole.sum(1) * self.steps


def whole_numbers(weight: Tensor) -> WholeNumbers:
    """Round a matrix (O, I): the largest weight of each output becomes 127 or -127."""
    steps = weight.abs().amax(1).clamp_min_(_SMALLEST) / _HIGHEST
    return WholeNumbers((weight / steps[:, None]).round_(), steps)
