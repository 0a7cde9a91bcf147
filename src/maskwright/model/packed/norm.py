"""LayerNorm for use alone (Ba et al. 2016)."""

from typing import final

import torch
from torch import Tensor, nn


@final
class Norm:
    """A LayerNorm whose weights are only read; it sums in fp32 and returns what it was given.

    Args:
        norm: The module it computes as.
    """

    def __init__(self, norm: nn.LayerNorm) -> None:
        self._shape, self._eps = norm.normalized_shape, norm.eps
        self._weight, self._bias = norm.weight.detach(), norm.bias.detach()

    def __call__(self, values: Tensor) -> Tensor:
        """Normalise each row of values (M, H)."""
        return torch.layer_norm(values, self._shape, self._weight, self._bias, self._eps)
