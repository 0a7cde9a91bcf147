"""A dense layer of `fp32.c` or `int8.c`: its weights as that code reads them, and the call.

T tokens, O outputs, I inputs.
"""

import ctypes
from typing import final

import torch
from torch import Tensor

from maskwright.kernels.cpu.layouts import ROUNDING, DenseLayout, RoomLayout, given, room
from maskwright.kernels.cpu.products import LANES, PRODUCTS, NativePrecision

ACTIVATIONS = {"": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3}


@final
class NativeDense:
    """A dense layer with its activation, computed by our own code.

    Args:
        weight: Shape (O, I), fp32, of an I that `products.fits`. It is copied.
        bias: Shape (O,), fp32. It is copied.
        activation_name: For `core.tensors.activation`; "" for none.
        precision: Of its products.

    Attributes:
        layout: What the code is given. It points into this object, which must outlive it.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation_name: str = "", *, precision: NativePrecision) -> None:
        products = PRODUCTS[precision]
        self._transform = products.code.needed().transform
        self._rounds = products.rounds
        self._activation = ACTIVATIONS[activation_name]
        self._outputs, self._inputs = weight.shape
        self._weights = products.lay_out(given(weight), given(bias))
        panels, bias, steps, sums = self._weights
        self.layout = DenseLayout(
            panels.data_ptr(),
            None if steps is None else steps.data_ptr(),
            None if sums is None else sums.data_ptr(),
            bias.data_ptr(),
            self._inputs,
            self._outputs + -self._outputs % LANES,
        )

    def __call__(self, inputs: Tensor, residual: Tensor | None = None, /) -> Tensor:
        """Multiply (see `dense.Dense`)."""
        inputs = given(inputs)
        tokens, width = inputs.shape
        if width != self._inputs:
            raise ValueError(f"the layer has {self._inputs} inputs, and was given {width}")
        whole, roundings = room(0), room(0)
        if self._rounds:
            whole, roundings = room(tokens, width, dtype=torch.int8), room(tokens, ROUNDING)
        product = room(tokens, self.layout.outputs)
        inside = None
        if residual is not None and residual.shape == product.shape:
            inside = given(residual)
        self._transform(
            ctypes.byref(self.layout),
            inputs.data_ptr(),
            tokens,
            self._activation,
            None if inside is None else inside.data_ptr(),
            ctypes.byref(RoomLayout(whole=whole.data_ptr(), roundings=roundings.data_ptr())),
            product.data_ptr(),
            torch.get_num_threads(),
        )
        product = product[:, : self._outputs]
        return product if residual is None or inside is not None else product + residual
