"""Few different numbers of rows in matrix products.

How many tokens a micro-batch has, and how many of them are asked behind the last attention, differs from one to the
next. oneDNN compiles every product anew for each number of rows that it has not met. So the rows are filled up to a
multiple of a small number; what is added gives nothing to any loss or gradient. Streams are filled up when they are
laid out, for every device alike; what is asked is filled up on a CPU only, since elsewhere few kernels are made for a
number of rows, and captured passes are filled up by themselves (`encoder.gpu.passes`).
"""

import torch
from torch import Tensor

MULTIPLE = 16
"""Rows come in multiples of this. 100 steps of bert/mini: 85 different numbers become 7, with 1.6 % more rows."""
_COARSER = ((4096, 4), (2048, 2), (0, 1))
"""From how many rows on they come in how many times that multiple."""


def rounded_up(count: int) -> int:
    """Return the next multiple of `MULTIPLE`; from 2,048 on of twice and from 4,096 on of four times that.

    So there are 64 numbers from 1,024 to 2,048 and as many from there to 4,096 and on to 8,192, and no more than 1.6 %
    is added to one of them. 0 stays 0.
    """
    multiple = MULTIPLE * next(times for least, times in _COARSER if count >= least)
    return -(-count // multiple) * multiple


def filled_up(places: Tensor) -> Tensor:
    """Return offsets with the last one repeated, so that their number is `rounded_up`.

    Whoever reads what comes of the added ones must drop it.

    Args:
        places: Shape (M,), int64; M may be 0.
    """
    count = len(places)
    added = rounded_up(count) - count if places.device.type == "cpu" else 0
    return torch.cat([places, places[-1:].expand(added)]) if added else places


def with_unread(read: Tensor, num_slots: int) -> Tensor | None:
    """Return the slots that are read and as many of the first others as make their number `rounded_up`.

    Args:
        read: Shape (W,), int64, ascending.
        num_slots: T.

    Returns:
        Shape (W',), ascending, each once. None for all where that number would be T or more.
    """
    count = len(read)
    wanted = rounded_up(count) if read.device.type == "cpu" else count
    if wanted >= num_slots:
        return None
    if wanted == count:
        return read
    is_read = torch.zeros(num_slots, dtype=torch.bool, device=read.device)
    is_read[read] = True
    is_read[(~is_read[:wanted]).nonzero().squeeze(1)[: wanted - count]] = True
    return is_read.nonzero().squeeze(1)
