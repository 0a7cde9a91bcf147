"""Best-fit packing of sequences into rows of equal length (`sequences`), so that attention computes little padding.

On natural documents this fills more than 99 % of many rows (Krell et al. 2021, "Efficient sequence packing without
cross-contamination", report the same for histogram packing).
"""

from bisect import bisect_left, insort

import numpy as np

from maskwright.core.types import IntArray


def pack(lengths: IntArray, row_length: int) -> tuple[IntArray, int]:
    """Pack sequences of 1 to `row_length` tokens into rows: the longest first, each into the fullest one that it fits.

    Return each sequence's first slot, counted through all rows, shape (B,), and the number of rows. No sequence crosses
    the end of a row.
    """
    if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= row_length:
        raise ValueError(f"sequences of {lengths.min()} to {lengths.max()} tokens do not fit rows of {row_length}")
    first_slots, num_rows = np.zeros(len(lengths), dtype=np.int64), 0
    open_rows: list[tuple[int, int]] = []  # Free slots and number of each row that is not full, ascending.
    order = np.argsort(-lengths, kind="stable")
    for sequence, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        index = bisect_left(open_rows, (length, 0))
        if index < len(open_rows):
            free, row = open_rows.pop(index)
        else:
            free, row, num_rows = row_length, num_rows, num_rows + 1
        first_slots[sequence] = row * row_length + row_length - free
        if free > length:
            insort(open_rows, (free - length, row))
    return first_slots, num_rows
