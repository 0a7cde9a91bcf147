"""Rotary position embeddings (Su et al. 2021, "RoFormer"): values i and i + D/2 of a head rotate together.

T tokens, N heads, D head size, H = N D.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Cosine and sine of each token's angles, fp32, shape (T, 1, D / 2)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, position_ids: Tensor, head_size: int, theta: float) -> "Rotation":
        """Return the rotation of positions (T,): pair i turns by theta^(-2 i / D) radians per position."""
        exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device=position_ids.device) / head_size
        angles = position_ids[:, None, None].float() * (1.0 / theta**exponents)
        return cls(angles.cos(), angles.sin())

    def __call__(self, values: Tensor, num_heads: int) -> Tensor:
        """Rotate queries or keys, shape (T, H), computed in fp32 at least."""
        first, second = values.view(len(values), num_heads, -1).chunk(2, -1)
        turned = first * self.cos - second * self.sin, second * self.cos + first * self.sin
        return torch.cat(turned, -1).view(values.shape).to(values.dtype)
