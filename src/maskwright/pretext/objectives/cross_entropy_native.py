"""Calls of `cross_entropy.c`: losses, slopes and draws of a block of logits, in one go on a processor.

R rows, M targets, V entries of the vocabulary.
"""

import ctypes
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from maskwright.core.native.library import AVX512, Code, has_bf16
from maskwright.core.own_code import is_allowed

_HALF = torch.bfloat16


class _Scores(ctypes.Structure):
    """`Scores` of `cross_entropy.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("logits", "bias", "labels", "numbers", "drawn")),
        *((name, ctypes.c_void_p) for name in ("losses", "right", "to_bias", "sums", "shares", "block_sums")),
        *((name, ctypes.c_int64) for name in ("rows", "targets", "entries")),
        ("loss", ctypes.c_double),
        ("correct", ctypes.c_int64),
        ("half", ctypes.c_int32),
    ]


def _declare(found: ctypes.CDLL) -> None:
    found.room_of.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    found.score_rows.argtypes = (ctypes.c_void_p, ctypes.c_int)
    found.scale_halves.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int)
    found.room_of.restype = found.score_rows.restype = found.scale_halves.restype = None


CODE = Code(Path(__file__).with_name("cross_entropy.c"), AVX512, _declare, shares_threads=True)


class BlockScores(NamedTuple):
    """What is said of a block of logits.

    Attributes:
        loss: Summed cross entropy in nats.
        correct: At how many targets the best logit, the first of equals, is the answer's.
        drawn: Shape (M,), int64, or None if no numbers were given.
    """

    loss: float
    correct: int
    drawn: Tensor | None


def takes(dtype: torch.dtype, *factors: Tensor) -> bool:
    """Say whether this code scores: on a processor that has it, in fp32 or bf16.

    Args:
        dtype: Of the products.
        factors: Features, weight and bias.
    """
    if any(each.device.type != "cpu" or each.dtype not in (torch.float32, _HALF) for each in factors):
        return False
    return (dtype == torch.float32 or (dtype == _HALF and has_bf16())) and is_allowed() and CODE.library() is not None


def score(
    logits: Tensor, bias: Tensor, labels: Tensor, to_bias: Tensor | None = None, numbers: Tensor | None = None
) -> BlockScores:
    """Score logits against labels; if asked to, write their slopes, softmax minus one hot, over them.

    Args:
        logits: Without the vocabulary's bias. Shape (R, V), fp32 or bf16, contiguous; rows from M on count for nothing.
        bias: Shape (V,), fp32.
        labels: Shape (M,), int64, in [0, V).
        to_bias: Sums of the slopes over rows, to which these are added. Shape (V,), fp32; None writes no slopes.
        numbers: Uniform in [0, 1). Shape (M,); None draws nothing.

    Raises:
        IndexError: If a label is no entry.
    """
    labels = labels.to(torch.int64).contiguous()
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise IndexError(
            f"labels from {int(labels.min())} to {int(labels.max())} for a vocabulary of {logits.shape[1]} entries: "
            "give targets only, with their tokens' ids"
        )
    call, drawn = _score(logits, bias, labels, to_bias, numbers)
    return BlockScores(call.loss, call.correct, drawn)


def draw(logits: Tensor, bias: Tensor, numbers: Tensor) -> Tensor:
    """Draw from each row the entry at which the summed probabilities, in the order of ids, pass the row's number.

    Args:
        logits: Without the vocabulary's bias. Shape (R, V), fp32 or bf16, contiguous; R at least M.
        bias: Shape (V,), fp32.
        numbers: Uniform in [0, 1). Shape (M,).

    Returns:
        Shape (M,), int64.
    """
    drawn = _score(logits, bias, None, None, numbers)[1]
    assert drawn is not None
    return drawn


def _score(
    logits: Tensor, bias: Tensor, labels: Tensor | None, to_bias: Tensor | None, numbers: Tensor | None
) -> tuple[_Scores, Tensor | None]:
    bias = bias.contiguous()
    numbers = None if numbers is None else numbers.to(torch.float32).contiguous()
    targets = numbers if labels is None else labels
    assert targets is not None
    beside = [bias] if to_bias is None else [bias, to_bias]
    fits = all(each.shape == logits.shape[1:] and each.dtype == torch.float32 for each in beside)
    if not fits or not logits.is_contiguous() or (to_bias is not None and not to_bias.is_contiguous()):
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} with biases of {[tuple(each.shape) for each in beside]}"
        )
    if len(targets) > len(logits) or (numbers is not None and len(numbers) != len(targets)):
        drawn_by = "" if numbers is None else f" and {len(numbers)} numbers to draw by"
        raise ValueError(f"{len(logits)} rows of logits for {len(targets)} targets{drawn_by}")
    drawn = None if numbers is None else torch.empty(len(targets), dtype=torch.int64)
    losses, right = torch.empty(len(targets), dtype=torch.float64), torch.empty(len(targets), dtype=torch.int64)
    # It points into tensors, which stay until the call is over.
    call = _Scores(
        logits=logits.data_ptr(),
        bias=bias.data_ptr(),
        labels=_address(labels),
        numbers=_address(numbers),
        drawn=_address(drawn),
        losses=losses.data_ptr(),
        right=right.data_ptr(),
        to_bias=_address(to_bias),
        rows=len(logits),
        targets=len(targets),
        entries=logits.shape[1],
        half=logits.dtype == _HALF,
    )
    library, threads = CODE.needed(), torch.get_num_threads()
    sizes = (ctypes.c_int64 * 3)()
    library.room_of(ctypes.byref(call), threads, sizes)
    rooms = [torch.empty(size, dtype=torch.float32) for size in sizes]
    call.sums, call.shares, call.block_sums = (room.data_ptr() for room in rooms)
    library.score_rows(ctypes.byref(call), threads)
    return call, drawn


def scaled(gradient: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
    """Return a gradient times a number, in a given precision: in its own memory where it has that already.

    Args:
        gradient: fp32 or bf16.
        factor: By which it is multiplied; 1 changes nothing.
        dtype: fp32 or bf16.
    """
    if gradient.dtype != _HALF or dtype == _HALF or not gradient.is_contiguous():
        gradient = gradient.to(dtype)
        return gradient if factor == 1 else gradient.mul_(factor)
    result = torch.empty_like(gradient, dtype=dtype)
    where = gradient.data_ptr(), result.data_ptr()
    CODE.needed().scale_halves(*where, gradient.numel(), factor, torch.get_num_threads())
    return result


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
