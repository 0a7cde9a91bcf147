"""Dense layers in 8-bit integers by oneDNN, for CPUs and layer shapes that the C code does not support.

T tokens, O outputs, I inputs.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from maskwright.core.errors import DeviceError

_HIGHEST_INPUT, _HIGHEST_WEIGHT, _ZERO, _SMALLEST = 127, 63, 128, 1e-30
"""Weights have 7 bits: without VNNI, a CPU adds two products of 8-bit integers in 16 bits, which 255 x 127 x 2 exceeds
and 255 x 63 x 2 does not (oneDNN's developer guide, "Nuances of int8 computations"). All CPUs compute the same."""


@dataclass(frozen=True, slots=True)
class QuantizedTokens:
    """Inputs of a dense layer: value = center + integer * half_range / 127.

    Attributes:
        integers: Shape (T, I), uint8, from 1 to 255, which are -127 to 127.
        center, half_range: Shape (T, 1): the middle of each token's values, and half of what they span.
    """

    integers: Tensor
    center: Tensor
    half_range: Tensor

    @classmethod
    def of(cls, hidden: Tensor) -> Self:
        """Quantize shape (T, I) in fp32."""
        lowest, highest = hidden.amin(1, keepdim=True), hidden.amax(1, keepdim=True)
        center, half_range = (lowest + highest) / 2, ((highest - lowest) / 2).clamp_min_(_SMALLEST)
        # Conversion drops the fraction: with the half, it rounds.
        shifted = ((hidden - center).mul_(_HIGHEST_INPUT / half_range)).add_(_ZERO + 0.5)
        return cls(shifted.to(torch.uint8), center, half_range)


class Int8Linear(nn.Module):
    """A dense layer for inference: its weights are quantized per output, its inputs per token.

    No token's scale depends on another's, so the rest of a text's batch changes its numbers by rounding only.
    """

    weight: Tensor
    scales: Tensor
    sums: Tensor
    zero_points: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scales = weight.abs().amax(1).clamp_min_(_SMALLEST) / _HIGHEST_WEIGHT
        integers = (weight / scales[:, None]).round_()
        tensors = {
            "weight": torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), None),
            "scales": scales / _HIGHEST_INPUT,
            "sums": integers.sum(1) * scales,
            "zero_points": torch.zeros_like(scales, dtype=torch.int64),
            "bias": None if layer.bias is None else layer.bias.detach().float(),
        }
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)
        self.out_features = layer.out_features

    def forward(self, hidden: Tensor) -> Tensor:
        """Map shape (T, I) to (T, O), in fp32."""
        return self.multiply(QuantizedTokens.of(hidden))

    def multiply(self, inputs: QuantizedTokens) -> Tensor:
        """Map (T, I) to shape (T, O), in fp32."""
        products = torch.ops.onednn.qlinear_pointwise(
            *(inputs.integers, 1.0, _ZERO),
            *(self.weight, self.scales, self.zero_points, None),
            *(1.0, 0, torch.float32),
            *("none", [], ""),
        )
        offset = inputs.center * self.sums if self.bias is None else torch.addcmul(self.bias, inputs.center, self.sums)
        return offset.addcmul_(products, inputs.half_range)


def int8_problem() -> DeviceError | None:
    """Return why dense layers cannot be computed in int8 here, None if they can."""
    if torch._C._has_mkldnn and hasattr(torch.ops.onednn, "qlinear_prepack"):
        return None
    return DeviceError("this build of PyTorch has no int8 layers (oneDNN)", hint="Install PyTorch's own wheel.")
