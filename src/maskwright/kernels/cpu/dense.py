"""One dense layer for use alone, in three precisions: the weights are laid out once, when it is made.

- "fp32": exact to rounding. Computed by our own code (`native_dense`) where it could be compiled and may be used, else
  by oneDNN's product with the activation or the addition of the residual inside. That computes in fp32 on every
  processor; `matmul_library` needs a permission to round, and a check that it was not used.
- "bf16": oneDNN's product of bfloat16 numbers; sums are fp32 inside the product.
- "int8": 8-bit weights, one step an output, and 8-bit inputs, one step a token (Yao et al. 2022, "ZeroQuant",
  section 4.1). No token is rounded by another's outliers, so a text's numbers do not depend on its company. Computed by
  our own code (`native_dense`) where it could be compiled, else by oneDNN with the libraries' own steps around it.

M tokens, I inputs, O outputs.
"""

from typing import Protocol, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.core.tensors import activation
from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.native_dense import NativeDense
from maskwright.kernels.cpu.products import fits
from maskwright.kernels.cpu.quantization import whole_numbers

_WORD, _TAIL = 4, 8
"""Bytes of an fp32 number, and of the two that the library writes behind a row of 8-bit numbers."""
_INSIDE = {"": ("none", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", "")}
"""Our names of activations: what oneDNN calls them, and how it computes them."""


class Dense(Protocol):
    """A dense layer, then an activation, then a residual."""

    def __call__(self, inputs: Tensor, residual: Tensor | None = None, /) -> Tensor:
        """Multiply.

        Args:
            inputs: Shape (M, I).
            residual: Shape (M, O), added; only where there is no activation.

        Returns:
            Shape (M, O).
        """


def pack(weight: Tensor, bias: Tensor, precision: ProductPrecision, activation_name: str = "") -> Dense:
    """Lay out the weights of a dense layer.

    Args:
        weight: Shape (O, I), fp32. It is copied.
        bias: Shape (O,), fp32.
        precision: Of the products. Inputs and outputs are bfloat16 for "bf16", else fp32. A width I that is no multiple
            of 4 has no layout in 8 bits; such a layer stays in fp32.
        activation_name: For `core.tensors.activation`; "" for none.
    """
    weight, bias = weight.detach(), bias.detach()
    if precision == "int8" and weight.shape[1] % _WORD:
        precision = "fp32"
    if precision != "bf16" and fits(weight.shape[1], precision):
        return NativeDense(weight, bias, activation_name, precision=precision)
    if precision == "int8":
        return Int8Dense(weight, bias, activation_name)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return FusedDense(weight.to(dtype), bias.to(dtype), activation_name)


def joined(*layers: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return the weights and biases of one layer that computes several, their outputs side by side."""
    return torch.cat([layer.weight.detach() for layer in layers]), torch.cat([layer.bias.detach() for layer in layers])


@final
class FusedDense:
    """A dense layer by oneDNN, with what follows it inside."""

    def __init__(self, weight: Tensor, bias: Tensor, activation_name: str) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias
        self._inside = _INSIDE[activation_name]
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self._multiply_add = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, inputs: Tensor, residual: Tensor | None = None, /) -> Tensor:
        """Multiply (see `Dense`)."""
        if residual is not None:
            added: Tensor = self._multiply_add(inputs, residual, self._weight, self._bias, "add")
            return added
        name, algorithm = self._inside
        product: Tensor = self._multiply(inputs, self._weight, self._bias, name, [], algorithm)
        return product


@final
class Int8Dense:
    """A dense layer of 8-bit numbers by oneDNN; sums are whole numbers, bias, activation and residual are fp32.

    An input is low + step * (a whole number from 0 to 255), where low is its token's least value. So an output is
    step * (whole numbers @ weights) + low * (sum of the weights) + bias.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation_name: str) -> None:
        rounded = whole_numbers(weight)
        self._weight = torch.ops.onednn.qlinear_prepack(F.pad(rounded.whole, (0, _TAIL)).to(torch.int8), None)
        self._steps, self._sums, self._bias = rounded.steps, rounded.sums, bias
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        self._activation = activation_name
        self._round = torch.ops.quantized.embedding_bag_byte_prepack.default
        self._multiply = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, inputs: Tensor, residual: Tensor | None = None, /) -> Tensor:
        """Multiply (see `Dense`)."""
        # The library's only kernel that rounds each row by its own range. It writes step and low behind the row, in
        # fp32; weights of zero stand against those bytes, which spares a copy.
        whole = self._round(inputs)
        _, steps, lows = whole.view(torch.float32).split((inputs.shape[1] // _WORD, 1, 1), dim=1)
        product = self._multiply(
            whole, 1.0, 0, self._weight, self._steps, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        product = torch.addcmul(self._bias if residual is None else residual.add(self._bias), product, steps)
        product.addcmul_(self._sums, lows)
        return activation(self._activation, product) if self._activation else product
