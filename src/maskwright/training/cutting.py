"""Cut a step's packed tokens into micro-batches, each padded to its number of tokens.

T tokens, B sequences, P micro-batches, F tokens with padding.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from maskwright.core.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The boundaries of micro-batches.

    Attributes:
        cu_seqlens: Shape (B+1,), the first token of each sequence, and T.
        slots: Shape (B,), the slot of each sequence's first token in the rows of its micro-batch.
        bounds: Shape (P+1,), the first sequence of each micro-batch, and B.
        begins: Shape (P+1,), the first padded token of each micro-batch, and F.
    """

    cu_seqlens: IntArray
    slots: IntArray
    bounds: IntArray
    begins: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStream:
    """The encoder's inputs for all micro-batches, concatenated: int64, as in `FlatBatch`.

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
    """Cut a step's tokens into padded micro-batches.

    Args:
        cut: The boundaries.
        ids: Shape (T,), int32.
        segment_ids: Shape (T,), int8.
        pad: The padding id; padding has sequence -1, position 0 and segment 0.
    """
    firsts, lengths = cut.cu_seqlens[:-1], np.diff(cut.cu_seqlens)
    numbers = np.arange(len(firsts)) - np.repeat(cut.bounds[:-1], np.diff(cut.bounds))
    position_ids = np.arange(len(ids)) - np.repeat(firsts, lengths)
    token_bounds = cut.cu_seqlens[cut.bounds].tolist()

    def padded(values: IntArray, padding: int) -> IntArray:
        written = np.full(cut.begins[-1], padding, dtype=np.int64)
        for to, (begin, end) in zip(cut.begins.tolist(), itertools.pairwise(token_bounds), strict=False):
            written[to : to + end - begin] = values[begin:end]
        return written

    return CutStream(
        ids=padded(ids, pad),
        position_ids=padded(position_ids, 0),
        segment_ids=padded(segment_ids, 0),
        sequence_ids=padded(np.repeat(numbers, lengths), -1),
        row_slots=position_ids + np.repeat(cut.slots, lengths),
    )
