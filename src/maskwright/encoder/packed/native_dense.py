"""A dense layer of `int8.c`: its weights as that code reads them, and the call.

T tokens, O outputs, I inputs.
"""

import ctypes
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.encoder.native.int8 import CODE
from maskwright.encoder.packed.whole import whole_numbers

LANES = 16
"""fp32 numbers in a register of `int8.c`: widths are multiples of this."""
_MOST_INPUTS = 1 << 16
"""Products of 8-bit numbers that add up in 32 bits: 65,536 x 255 x 128 is less than 2^31."""
ACTIVATIONS = {"": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3}
_PANEL, _GROUP = 48, 4
"""Of `int8.c`: outputs side by side, inputs in one instruction."""
_ZERO = 128
ROUNDING = 3
"""Numbers of 4 bytes that say how a token was rounded."""


class DenseLayout(ctypes.Structure):
    """`Dense` of `int8.c`."""

    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("step", ctypes.c_void_p),
        ("sum", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    ]


class RoomLayout(ctypes.Structure):
    """`Room` of `int8.c`: what it writes to meanwhile."""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("projected", "mixed", "other", "inner", "scores", "whole", "roundings")
    ]


def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return memory for the C code, whatever types and devices PyTorch was told to take by itself."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def rounding_room(tokens: int, width: int) -> dict[str, Tensor]:
    """Return what tokens are rounded into, by its name in `RoomLayout`."""
    return {"whole": room(tokens, width, dtype=torch.int8), "roundings": room(tokens, ROUNDING)}


def given(value: Tensor) -> Tensor:
    """Return a tensor as the C code reads it: fp32 side by side in the processor's memory; a copy only if it is not."""
    return value.detach().to("cpu", torch.float32).contiguous()


def fits(inputs: int) -> bool:
    """Say whether the code is there and takes layers of this many inputs."""
    return inputs % LANES == 0 and inputs <= _MOST_INPUTS and CODE.library() is not None


@final
class NativeDense:
    """A dense layer of 8-bit numbers with its activation, computed by `int8.c`.

    Args:
        weight: Shape (O, I), fp32, of an I that `fits`. It is copied.
        bias: Shape (O,), fp32. It is copied.
        activation_name: For `core.tensors.activation`; "" for none.

    Attributes:
        layout: What the code is given. It points into this object, which must outlive it.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation_name: str = "") -> None:
        found = CODE.library()
        assert found is not None
        self._transform = found.transform
        self._activation = ACTIVATIONS[activation_name]
        self._outputs, self._inputs = weight.shape
        rounded = whole_numbers(given(weight))
        to_panels, to_lanes = -self._outputs % _PANEL, -self._outputs % LANES
        whole = F.pad(rounded.whole, (0, 0, 0, to_panels)).add_(_ZERO).to(torch.uint8)
        # (panel, output in it, group, input in it) to (panel, group, output, input).
        panels = whole.view(-1, _PANEL, self._inputs // _GROUP, _GROUP).transpose(1, 2).contiguous()
        facts = [F.pad(each, (0, to_panels)) for each in (rounded.steps, rounded.sums, given(bias))]
        self._kept = (panels, *facts)
        self.layout = DenseLayout(*(each.data_ptr() for each in self._kept), self._inputs, self._outputs + to_lanes)

    def __call__(self, inputs: Tensor, residual: Tensor | None = None, /) -> Tensor:
        """Multiply (see `dense.Dense`)."""
        inputs = given(inputs)
        tokens, width = inputs.shape
        if width != self._inputs:
            raise ValueError(f"the layer has {self._inputs} inputs, and was given {width}")
        meanwhile = rounding_room(tokens, width)
        product = room(tokens, self.layout.outputs)
        self._transform(
            ctypes.byref(self.layout),
            inputs.data_ptr(),
            tokens,
            self._activation,
            ctypes.byref(RoomLayout(**{name: tensor.data_ptr() for name, tensor in meanwhile.items()})),
            product.data_ptr(),
            torch.get_num_threads(),
        )
        product = product[:, : self._outputs]
        return product if residual is None else product + residual
