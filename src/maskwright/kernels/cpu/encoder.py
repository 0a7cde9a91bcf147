"""The layers of an encoder for inference on a CPU with AVX512, in C: fp32, or 8-bit weights and activations.

In int8, weights are quantized per output channel and activations per token (Yao et al. 2022, "ZeroQuant", section 4.1).
No token's scale depends on another's outliers, so a text's numbers do not depend on the rest of its batch.

T tokens, W output positions, P positions, H hidden size, D head size, O outputs, I inputs.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.core.errors import DeviceError
from maskwright.kernels.cpu.library import library, structure
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import kernels_enabled

Precision = Literal["fp32", "int8"]

LANES = 16
"""fp32 numbers in a register: supported widths are multiples of this."""
MAX_INPUTS_INT8 = 1 << 16
"""8-bit integers are multiplied and summed in 32 bits: 65,536 x 255 x 128 is less than 2^31."""
_PANELS = {"fp32": 64, "int8": 48}
"""Outputs in a panel, as in `fp32.c` and `int8.c`."""
_GROUP = 4
"""Inputs in one instruction of `int8.c`."""
_ZERO, _HIGHEST, _SMALLEST = 128, 127, 1e-30
_QUANTIZATION = 3
"""4-byte numbers that describe how a token is quantized (`Quantization` in `encoder.h`)."""
_ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3}


@dataclass(frozen=True, slots=True)
class Sublayer:
    """Self-attention or feed-forward: dense layers of one input (query, key and value), the output layer, LayerNorm."""

    first: Sequence[nn.Linear]
    second: nn.Linear
    norm: nn.LayerNorm | None


@dataclass(frozen=True, slots=True)
class InferenceLayer:
    """Sublayers, window and rotation of one layer.

    Attributes:
        attention, feed_forward: The numbers of its sublayers.
        window: Tokens to either side that a token attends to; None for all.
        rotation: Cosines, then sines of each position's angles, shape (P, D); None without rotary positions.
    """

    attention: int
    feed_forward: int
    window: int | None = None
    rotation: Tensor | None = None


def inference_problem(precision: Precision) -> DeviceError | None:
    """Return why there is no C code for a precision on this machine, and what would help; None if there is."""
    loaded = library(precision)
    return loaded if isinstance(loaded, DeviceError) else None


def inference_layers(
    attention: Sequence[Sublayer],
    feed_forward: Sequence[Sublayer],
    layers: Sequence[InferenceLayer],
    *,
    num_heads: int,
    activation: str,
    precision: Precision,
    final_norm: nn.LayerNorm | None = None,
) -> "InferenceLayers | None":
    """Return the layers of an encoder with copied weights, or None where the C code does not support them.

    int8 is a precision of its own, which the setting `kernels` does not affect.

    Args:
        attention, feed_forward: The distinct sublayers, fp32 on the CPU. The feed-forward is gated if its first layer
            has twice as many outputs as the second has inputs.
        activation: "gelu", "gelu_tanh" or "relu".
        final_norm: The norm after the last layer of a pre-norm encoder; None for post-norm.
    """
    width, inner = feed_forward[0].second.weight.shape
    widths = width, inner, width // num_heads
    if any(each % LANES for each in widths) or (precision == "int8" and max(widths) > MAX_INPUTS_INT8):
        return None
    if any(layer.rotation is not None for layer in layers) and width // num_heads % (2 * LANES):
        return None
    if precision == "fp32" and not kernels_enabled():
        return None
    if attention[0].second.weight.device.type != "cpu" or inference_problem(precision) is not None:
        return None
    return InferenceLayers(attention, feed_forward, layers, num_heads, activation, precision, final_norm)


# The structures of `encoder.h`.
_pointer, _number = ctypes.c_void_p, ctypes.c_int64
_Dense = structure(weight=_pointer, scale=_pointer, sum=_pointer, bias=_pointer, inputs=_number, outputs=_number)
_Norm = structure(weight=_pointer, bias=_pointer)
_Sublayer = structure(first=_Dense, second=_Dense, norm=_Norm)
_Encoder = structure(
    **dict.fromkeys(("attention", "feed_forward"), _pointer),
    **dict.fromkeys(("attention_plan", "feed_forward_plan", "windows", "rotations"), _pointer),
    final=_Norm,
    **dict.fromkeys(("layers", "width", "inner", "heads", "activation", "is_pre_norm", "is_gated"), _number),
    epsilon=ctypes.c_float,
)
_Batch = structure(
    **dict.fromkeys(("cu_seqlens", "outputs", "positions", "hidden", "result"), _pointer),
    **dict.fromkeys(("tokens", "sequences", "longest", "num_outputs"), _number),
)
_WORKSPACE = ("projected", "context", "other", "normed", "inner", "scores", "quantized", "quantizations")
_Workspace = structure(**dict.fromkeys(_WORKSPACE, _pointer))


@final
class InferenceLayers:
    """See `inference_layers`. One call computes all layers, so that short texts do not wait for Python."""

    def __init__(
        self,
        attention: Sequence[Sublayer],
        feed_forward: Sequence[Sublayer],
        layers: Sequence[InferenceLayer],
        num_heads: int,
        activation: str,
        precision: Precision,
        final_norm: nn.LayerNorm | None,
    ) -> None:
        code = library(precision)
        assert isinstance(code, ctypes.CDLL)
        code.encode.argtypes, code.encode.restype = (_pointer, _pointer, _pointer, ctypes.c_int), None
        code.attention_workspace.argtypes, code.attention_workspace.restype = (_number, _number), _number
        self._code, self._quantizes, self._num_heads = code, precision == "int8", num_heads
        self._width, self._inner = feed_forward[0].second.weight.shape
        self._is_pre_norm, self._is_gated = final_norm is not None, len(feed_forward[0].first[0].weight) > self._inner
        self._kept: list[object] = []  # What the C code has pointers to.
        sublayers = [
            (_Sublayer * len(group))(*(self._sublayer(each, precision) for each in group))
            for group in (attention, feed_forward)
        ]
        numbers = [(each.attention, each.feed_forward, -1 if each.window is None else each.window) for each in layers]
        by_layer = [(ctypes.c_int64 * len(layers))(*of_all) for of_all in zip(*numbers, strict=True)]
        rotations = [None if each.rotation is None else _fp32(each.rotation) for each in layers]
        self._num_positions = next((len(each) for each in rotations if each is not None), None)
        pointers = (_pointer * len(layers))(*(None if each is None else each.data_ptr() for each in rotations))
        arrays: list[ctypes.Array[Any]] = [*sublayers, *by_layer, pointers]
        self._kept += [*arrays, *rotations]
        norms = (each.norm for each in (*feed_forward, *attention))
        self._encoder = _Encoder(
            *(ctypes.addressof(each) for each in arrays),
            self._norm(final_norm),
            len(layers),
            self._width,
            self._inner,
            num_heads,
            _ACTIVATIONS[activation],
            self._is_pre_norm,
            self._is_gated,
            next(norm.eps for norm in norms if norm is not None),
        )

    def __call__(
        self,
        hidden: Tensor,
        sequences: Sequences,
        output_positions: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Compute all layers from the input of the first one, shape (T, H).

        `position_ids`, (T,), are needed with rotary positions. Return fp32, (T, H), or (W, H) of the tokens at the
        output positions, (W,), in any order.
        """
        hidden, tokens, width = _fp32(hidden).clone(), len(hidden), self._width
        cu_seqlens = sequences.cu_seqlens.to("cpu", torch.int64).contiguous()
        # Indexing raises on positions that do not exist; the C code would read there.
        outputs = None if output_positions is None else torch.arange(tokens, device="cpu")[output_positions]
        positions = None
        if self._num_positions is not None:
            if position_ids is None or len(position_ids) != tokens or position_ids.min() < 0:
                raise IndexError(f"rotary positions need a position from 0 on for each of the {tokens} tokens")
            positions = torch.arange(self._num_positions, device="cpu")[position_ids]
        num_outputs = tokens if outputs is None else len(outputs)
        if not tokens or not num_outputs:
            return hidden.new_zeros(num_outputs, width)
        result = hidden if outputs is None else _empty(num_outputs, width)
        threads, most, widest = torch.get_num_threads(), max(tokens, num_outputs), max(width, self._inner)
        longest = int(cu_seqlens.diff().max())
        sizes = (
            most * max(3 * width, 2 * self._inner if self._is_gated else 0),
            most * width,
            most * width,
            most * width if self._is_pre_norm else 0,
            most * self._inner,
            threads * self._code.attention_workspace(width // self._num_heads, longest),
            most * widest // 4 if self._quantizes else 0,
            most * _QUANTIZATION if self._quantizes else 0,
        )
        workspace = [_empty(-(-size // LANES) * LANES) for size in sizes]
        batch = _Batch(
            cu_seqlens.data_ptr(),
            None if outputs is None else outputs.data_ptr(),
            None if positions is None else positions.data_ptr(),
            hidden.data_ptr(),
            result.data_ptr(),
            tokens,
            len(cu_seqlens) - 1,
            longest,
            num_outputs,
        )
        self._code.encode(
            ctypes.byref(self._encoder),
            ctypes.byref(batch),
            ctypes.byref(_Workspace(*(each.data_ptr() for each in workspace))),
            threads,
        )
        return result

    def _sublayer(self, sublayer: Sublayer, precision: Precision) -> ctypes.Structure:
        dense = self._dense(sublayer.first, precision), self._dense([sublayer.second], precision)
        return _Sublayer(*dense, self._norm(sublayer.norm))

    def _norm(self, norm: nn.LayerNorm | None) -> ctypes.Structure:
        if norm is None:
            return _Norm(None, None)
        values = [
            _fp32(norm.weight).clone(),
            _fp32(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias).clone(),
        ]
        self._kept += values
        return _Norm(*(each.data_ptr() for each in values))

    def _dense(self, layers: Sequence[nn.Linear], precision: Precision) -> ctypes.Structure:
        weight = torch.cat([_fp32(layer.weight) for layer in layers])
        bias = torch.cat(
            [_empty(len(layer.weight)).zero_() if layer.bias is None else _fp32(layer.bias) for layer in layers]
        )
        outputs, inputs = weight.shape
        missing = -outputs % _PANELS[precision]
        weight, bias = F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing))
        scales = sums = None
        if precision == "int8":
            panels, scales, sums = _quantized_panels(weight)
        else:
            # (panel, output in it, input) to (panel, input, output).
            panels = weight.view(-1, _PANELS["fp32"], inputs).transpose(1, 2).contiguous()
        self._kept += [panels, bias, scales, sums]
        pointers = (None if each is None else each.data_ptr() for each in (panels, scales, sums, bias))
        return _Dense(*pointers, inputs, outputs + -outputs % LANES)


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize a matrix (O, I) per row: integers from -127 to 127, as fp32, and their scales, shape (O,)."""
    scales = weight.abs().amax(1).clamp_min_(_SMALLEST) / _HIGHEST
    return (weight / scales[:, None]).round_(), scales


def _quantized_panels(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    integers, scales = quantize_int8(weight)
    panels = (integers + _ZERO).to(torch.uint8)
    # (panel, output in it, group, input in it) to (panel, group, output, input).
    panels = panels.view(-1, _PANELS["int8"], weight.shape[1] // _GROUP, _GROUP).transpose(1, 2).contiguous()
    return panels, scales, integers.sum(1) * scales


def _empty(*shape: int) -> Tensor:
    # Whatever default types and devices are set.
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _fp32(value: Tensor) -> Tensor:
    return value.detach().to("cpu", torch.float32).contiguous()
