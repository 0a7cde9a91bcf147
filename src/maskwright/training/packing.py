"""Put sequences into rows of equal length, so that no computation is spent on padding.

Best-fit decreasing: the longest sequence first, each into the fullest row that still has room. On natural
documents this fills more than 99 % of the slots (Krell et al. 2021, "Efficient sequence packing without
cross-contamination", report the same for histogram packing).
"""

from dataclasses import dataclass

import numpy as np

from maskwright.core.types import IntArray


@dataclass(frozen=True, slots=True)
class Packing:
    """Where each sequence lies.

    Attributes:
        order: Shape (B,), the sequences in the order in which they lie.
        rows: Shape (B,), row of each sequence in `order`, ascending.
        offsets: Shape (B,), first slot of each sequence within its row.
        num_rows: Rows used.
    """

    order: IntArray
    rows: IntArray
    offsets: IntArray
    num_rows: int


def pack(lengths: IntArray, row_length: int) -> Packing:
    """Pack sequences into rows.

    Args:
        lengths: Shape (B,), each between 1 and `row_length`.
        row_length: Slots in a row.

    Returns:
        A packing in which every sequence lies whole in one row and none overlap. It depends on the lengths alone.
    """
    order = np.argsort(-lengths, kind="stable")
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    used: list[int] = []
    row_of = np.empty(len(lengths), dtype=np.int64)
    offset_of = np.empty(len(lengths), dtype=np.int64)
    # Lengths come in descending order, so a room that no row had for one length stays unlikely for the next: the
    # scan upwards from the wanted room is short in practice.
    for sequence, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        room = length
        while room <= row_length and not with_room[room]:
            room += 1
        if room > row_length:
            row, room = len(used), row_length
            used.append(0)
        else:
            row = with_room[room].pop()
        row_of[sequence], offset_of[sequence] = row, used[row]
        used[row] += length
        with_room[room - length].append(row)
    lying = np.lexsort((offset_of, row_of))
    return Packing(order=lying, rows=row_of[lying], offsets=offset_of[lying], num_rows=len(used))
