"""Which tokens attend to each other, and what attention prepares once for all layers of a forward pass.

A *row* has R slots for tokens and holds one or several sequences (`packing`); slots without a token are padding.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from maskwright.kernels.packing import pack


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the tokens of a batch are in rows of R = `length` slots.

    `slots`, int64, shape (T,), has the slot of each token, counted through all rows; None if the tokens are full rows.
    """

    num_rows: int
    length: int
    slots: Tensor | None = None


class Sequences:
    """The sequences of a packed batch, which never attend to each other.

    `cu_seqlens`, int32, shape (B+1,), are their boundaries, from 0 to T, and `max_seqlen` is an upper bound of their
    lengths.
    """

    def __init__(self, cu_seqlens: Tensor, max_seqlen: int) -> None:
        self.cu_seqlens = cu_seqlens
        self.max_seqlen = max_seqlen
        self._row_masks: dict[int | None, Tensor | None] = {}

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @functools.cached_property
    def rows(self) -> Rows:
        """The sequences packed into rows as long as the longest; waits for the device."""
        device = self.cu_seqlens.device
        bounds = self.cu_seqlens.cpu().numpy().astype(np.int64)
        lengths = np.diff(bounds)
        length = min(self.max_seqlen, int(lengths.max(initial=1)))
        first_slots, num_rows = pack(lengths, length)
        if (lengths == length).all():
            return Rows(num_rows, length)
        slots = np.arange(bounds[-1]) + np.repeat(first_slots - bounds[:-1], lengths)
        return Rows(num_rows, length, torch.from_numpy(slots).to(device))

    def row_mask(self, window: int | None = None) -> Tensor | None:
        """Return 0 for pairs that attend to each other and -inf for others, fp32, (rows or 1, 1, R, R); None for none.

        With a window, only pairs at most that far apart attend to each other.
        """
        if window not in self._row_masks:
            self._row_masks[window] = self._row_mask() if window is None else self._band(window)
        return self._row_masks[window]

    def _row_mask(self) -> Tensor | None:
        rows = self.rows
        if rows.slots is None:
            return None
        # Padding is a sequence of its own, so that no softmax is over an empty set.
        sequence = rows.slots.new_full((rows.num_rows * rows.length,), -1)
        sequence[rows.slots] = torch.arange(len(self), device=sequence.device).repeat_interleave(self.cu_seqlens.diff())
        sequence = sequence.view(rows.num_rows, rows.length)
        differs = sequence[:, None, :, None] != sequence[:, None, None, :]
        return torch.zeros(differs.shape, device=sequence.device).masked_fill_(differs, -math.inf)

    def _band(self, window: int) -> Tensor:
        # A sequence is contiguous in its row, so slots are as far apart as tokens.
        place = torch.arange(self.rows.length, device=self.cu_seqlens.device)
        distant = (place[:, None] - place).abs() > window
        of_rows = self.row_mask()
        mask = torch.zeros(1, 1, *distant.shape, device=distant.device) if of_rows is None else of_rows
        return mask.masked_fill(distant, -math.inf)
