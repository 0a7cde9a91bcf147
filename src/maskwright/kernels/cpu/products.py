"""Products that our own C code computes, by precision: which layers it takes, and its weights as it reads them.

O outputs, I inputs, P panels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu import fp32, int8
from maskwright.kernels.cpu.library import Code
from maskwright.kernels.cpu.quantization import whole_numbers
from maskwright.kernels.setting import native_kernels_enabled

NativePrecision = Literal["fp32", "int8"]

LANES = 16
"""fp32 numbers in a register: widths of an encoder are multiples of this."""
_MOST_INPUTS = 1 << 16
"""Products of 8-bit numbers that add up in 32 bits: 65,536 x 255 x 128 is less than 2^31."""
_WHOLE_PANEL, _GROUP = 48, 4
"""Of `int8.c`: outputs side by side, inputs in one instruction."""
_ZERO = 128
_PANEL = 64
"""Of `fp32.c`: outputs side by side."""


class Weights(NamedTuple):
    """A layer's weights as the C code reads them, for whole panels of outputs.

    Attributes:
        panels: The matrix.
        bias: By output, fp32.
        steps: What one of a whole number is worth, by output, fp32; None where weights are no whole numbers.
        sums: What the weights of an output add up to; None likewise.
    """

    panels: Tensor
    bias: Tensor
    steps: Tensor | None = None
    sums: Tensor | None = None


@dataclass(frozen=True, slots=True)
class NativeProducts:
    """How products of one precision are computed.

    Attributes:
        code: What computes them.
        takes_inputs: Says whether it takes layers of so many inputs.
        lay_out: Copies a matrix (O, I) and a bias (O,), both fp32, into what it reads.
        rounds: Whether tokens are rounded before they are multiplied.
        native_kernels_enabled: Says whether it may be used: asked when weights are laid out, not at each call.
    """

    code: Code
    takes_inputs: Callable[[int], bool]
    lay_out: Callable[[Tensor, Tensor], Weights]
    rounds: bool
    native_kernels_enabled: Callable[[], bool]


def _takes_whole(inputs: int) -> bool:
    return inputs % LANES == 0 and inputs <= _MOST_INPUTS


def _lay_out_whole(weight: Tensor, bias: Tensor) -> Weights:
    rounded, missing = whole_numbers(weight), -len(weight) % _WHOLE_PANEL
    whole = F.pad(rounded.whole, (0, 0, 0, missing)).add_(_ZERO).to(torch.uint8)
    # (panel, output in it, group, input in it) to (panel, group, output, input).
    panels = whole.view(-1, _WHOLE_PANEL, weight.shape[1] // _GROUP, _GROUP).transpose(1, 2).contiguous()
    facts = [F.pad(each, (0, missing)) for each in (bias, rounded.steps, rounded.sums)]
    return Weights(panels, *facts)


def _lay_out_fp32(weight: Tensor, bias: Tensor) -> Weights:
    missing = -len(weight) % _PANEL
    outputs, inputs = weight.shape
    panels = weight.new_zeros((outputs + missing) // _PANEL, inputs, _PANEL)
    # (panel, output in it, input) to (panel, input, output); what is left over fills a part of the last panel.
    full = outputs // _PANEL
    panels[:full].copy_(weight[: full * _PANEL].view(full, _PANEL, inputs).transpose(1, 2))
    if missing:
        panels[full, :, : outputs - full * _PANEL].copy_(weight[full * _PANEL :].t())
    return Weights(panels, F.pad(bias, (0, missing)))


PRODUCTS: dict[NativePrecision, NativeProducts] = {
    # A run that began without our own code for attention goes on, and is measured, without this too.
    "fp32": NativeProducts(fp32.CODE, lambda inputs: inputs > 0, _lay_out_fp32, False, native_kernels_enabled),
    "int8": NativeProducts(int8.CODE, _takes_whole, _lay_out_whole, True, lambda: True),
}


def fits(inputs: int, precision: ProductPrecision) -> bool:
    """Say whether the code for a precision is there, may be used, and takes layers of this many inputs."""
    if precision == "bf16":
        return False
    products = PRODUCTS[precision]
    return products.takes_inputs(inputs) and products.native_kernels_enabled() and products.code.library() is not None
