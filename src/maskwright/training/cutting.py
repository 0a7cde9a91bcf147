"""Sequences put into rows, and a step's stream of tokens cut into micro-batches, each filled up to its number of rows.

By our own C code (`cutting.c`), and by NumPy where there is none (for rows: in `packing.pack`): the same.

T tokens, B sequences, P micro-batches, F tokens with what fills micro-batches up.
"""

import ctypes
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskwright.core.flat_arrays import given, usable
from maskwright.core.native.library import Code
from maskwright.core.types import IntArray


class _Cut(ctypes.Structure):
    """`Cut` of `cutting.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("cu_seqlens", "slots", "bounds", "begins")),
        ("parts", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("ids", "segment_ids")),
        ("pad", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("to_ids", "to_positions", "to_segments", "to_sequences", "to_slots")),
    ]


def _declare(found: ctypes.CDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.cut_stream.argtypes, found.cut_stream.restype = (pointer,), None
    found.pack_rows.argtypes = (pointer, number, number, pointer, pointer, pointer)
    found.pack_rows.restype = number


# One thread, whatever PyTorch has: batches are made while it computes on all of them. And no special instructions.
CODE = Code(Path(__file__).with_name("cutting.c"), {}, _declare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a stream is cut.

    Attributes:
        cu_seqlens: Shape (B+1,), where sequences begin, and T.
        slots: Shape (B,), the slot of each sequence's first token in the rows of its micro-batch.
        bounds: Shape (P+1,), the first sequence of each micro-batch, and B.
        begins: Shape (P+1,), where each micro-batch begins in what is written, and F.
    """

    cu_seqlens: IntArray
    slots: IntArray
    bounds: IntArray
    begins: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStream:
    """What of each token the encoder computes on, all micro-batches one behind the other: int64, as in `FlatBatch`.

    Attributes:
        ids, position_ids, segment_ids, sequence_ids: Shape (F,).
        row_slots: Shape (T,).
    """

    ids: IntArray
    position_ids: IntArray
    segment_ids: IntArray
    sequence_ids: IntArray
    row_slots: IntArray


def cut_stream(cut: Cut, ids: IntArray, segment_ids: IntArray, pad: int) -> CutStream:
    """Write a step's tokens micro-batch by micro-batch.

    Args:
        cut: Where it is cut.
        ids: Shape (T,), int32.
        segment_ids: Shape (T,), int8.
        pad: Id of filler, whose sequence is -1 and whose position and segment are 0.
    """
    if (library := usable(CODE)) is None:
        return _by_numpy(cut, ids, segment_ids, pad)
    size, filled = int(cut.cu_seqlens[-1]), int(cut.begins[-1])
    assert len(ids) == len(segment_ids) == size
    kept = {
        **{name: given(getattr(cut, name), np.int64) for name in ("cu_seqlens", "slots", "bounds", "begins")},
        "ids": given(ids, np.int32),
        "segment_ids": given(segment_ids, np.int8),
    }
    by_token = [np.empty(filled, dtype=np.int64) for _ in range(4)]
    row_slots = np.empty(size, dtype=np.int64)
    written = dict(zip(("to_ids", "to_positions", "to_segments", "to_sequences"), by_token, strict=True))
    arrays = {**kept, **written, "to_slots": row_slots}
    call = _Cut(parts=len(cut.bounds) - 1, pad=pad, **{name: each.ctypes.data for name, each in arrays.items()})
    library.cut_stream(ctypes.addressof(call))
    return CutStream(
        ids=by_token[0],
        position_ids=by_token[1],
        segment_ids=by_token[2],
        sequence_ids=by_token[3],
        row_slots=row_slots,
    )


def packed_rows(lengths: IntArray, row_length: int) -> tuple[IntArray, IntArray, IntArray, int] | None:
    """Put sequences into rows as `packing.pack` does.

    Args:
        lengths: Shape (B,), each between 1 and `row_length`.
        row_length: Slots in a row.

    Returns:
        What `Packing` holds: order, rows and offsets, each of shape (B,), int64, and how many rows there are; None
        where there is no code of ours.
    """
    if (library := usable(CODE)) is None:
        return None
    lengths = given(lengths, np.int64)
    order, rows, offsets = (np.empty(len(lengths), dtype=np.int64) for _ in range(3))
    to = (order.ctypes.data, rows.ctypes.data, offsets.ctypes.data)
    num_rows = library.pack_rows(lengths.ctypes.data, len(lengths), row_length, *to)
    if num_rows < 0:
        raise MemoryError("no memory for rows")
    return order, rows, offsets, num_rows


def _by_numpy(cut: Cut, ids: IntArray, segment_ids: IntArray, pad: int) -> CutStream:
    firsts, lengths = cut.cu_seqlens[:-1], np.diff(cut.cu_seqlens)
    numbers = np.arange(len(firsts)) - np.repeat(cut.bounds[:-1], np.diff(cut.bounds))
    position_ids = np.arange(len(ids)) - np.repeat(firsts, lengths)
    token_bounds = cut.cu_seqlens[cut.bounds].tolist()

    def filled(values: IntArray, filler: int) -> IntArray:
        written = np.full(cut.begins[-1], filler, dtype=np.int64)
        for to, (begin, end) in zip(cut.begins.tolist(), itertools.pairwise(token_bounds), strict=False):
            written[to : to + end - begin] = values[begin:end]
        return written

    return CutStream(
        ids=filled(ids, pad),
        position_ids=filled(position_ids, 0),
        segment_ids=filled(segment_ids, 0),
        sequence_ids=filled(np.repeat(numbers, lengths), -1),
        row_slots=position_ids + np.repeat(cut.slots, lengths),
    )
