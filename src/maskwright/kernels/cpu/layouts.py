"""The structures of `encoder.h`, by which C code is told what an encoder and a batch are; memory for it."""

import ctypes

import torch
from torch import Tensor

ROUNDING = 3
"""Numbers of 4 bytes that say how a token was rounded."""


class DenseLayout(ctypes.Structure):
    """`Dense` of `encoder.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "step", "sum", "bias")),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs")),
    ]


class NormLayout(ctypes.Structure):
    """`Norm` of `encoder.h`."""

    _fields_ = [("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p)]


class BlockLayout(ctypes.Structure):
    """`Block` of `encoder.h`."""

    _fields_ = [("first", DenseLayout), ("second", DenseLayout), ("norm", NormLayout)]


class TablesLayout(ctypes.Structure):
    """`Tables` of `encoder.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("words", "positions", "segments")),
        *((name, ctypes.c_int64) for name in ("num_words", "num_positions", "num_segments", "position_offset")),
        ("width", ctypes.c_int64),
    ]


class EncoderLayout(ctypes.Structure):
    """`Encoder` of `encoder.h`."""

    _fields_ = [
        ("tables", TablesLayout),
        *((name, ctypes.c_void_p) for name in ("attention", "ffn", "attention_plan", "ffn_plan")),
        *((name, ctypes.c_int64) for name in ("layers", "width", "inner", "heads", "activation")),
        ("epsilon", ctypes.c_float),
    ]


class BatchLayout(ctypes.Structure):
    """`Batch` of `encoder.h`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("ids", "position_ids", "segment_ids", "sequence_ids")),
        *((name, ctypes.c_void_p) for name in ("offsets", "places", "read", "embedded", "hidden", "result")),
        *((name, ctypes.c_int64) for name in ("slots", "row_length", "tokens", "runs", "longest", "num_read")),
    ]


class RoomLayout(ctypes.Structure):
    """`Room` of `encoder.h`: what it writes to meanwhile."""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("projected", "mixed", "other", "inner", "scores", "whole", "roundings")
    ]


def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return memory for the C code, whatever types and devices PyTorch was told to take by itself."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def given(value: Tensor) -> Tensor:
    """Return a tensor as the C code reads it: fp32 side by side in the processor's memory; a copy only if it is not."""
    return value.detach().to("cpu", torch.float32).contiguous()
