"""Boundaries of packed sequences, and the rows and masks that all layers of a forward pass share.

A *row* has R slots for tokens and holds one or several sequences (`packing`); slots without a token are padding.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.kernels.packing import pack


@dataclass(frozen=True, slots=True)
class Rows:
    """The layout of a batch's tokens in rows of R = `length` slots.

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
        self._block_masks: dict[tuple[int, int], Tensor] = {}

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

    @functools.cached_property
    def _sequence_of_slot(self) -> Tensor:
        """The sequence of each slot, int64, (rows, R). Padding is one too, so that no softmax is over an empty set."""
        rows, device = self.rows, self.cu_seqlens.device
        if rows.slots is None:
            return torch.arange(rows.num_rows, device=device)[:, None].expand(-1, rows.length)
        sequence = rows.slots.new_full((rows.num_rows * rows.length,), -1)
        sequence[rows.slots] = torch.arange(len(self), device=device).repeat_interleave(self.cu_seqlens.diff())
        return sequence.view(rows.num_rows, rows.length)

    def block_mask(self, window: int, block: int) -> Tensor:
        """Return which pairs attend to each other, by blocks of queries; bool.

        The shape is (rows blocks, 1, block, block + 2 window). The keys of a block begin `window` slots before it and
        end as many after it. The last block may be padded.
        """
        if (window, block) not in self._block_masks:
            sequence = F.pad(self._sequence_of_slot, (0, -self.rows.length % block), value=-1)
            keys = F.pad(sequence, (window, window), value=-2).unfold(1, block + 2 * window, block)
            slot = torch.arange(block + 2 * window, device=sequence.device)
            near = (slot[:block, None] + window - slot).abs() <= window
            same = sequence.view(len(sequence), -1, block, 1) == keys[:, :, None]
            self._block_masks[window, block] = (same & near).flatten(0, 1)[:, None]
        return self._block_masks[window, block]

    def _row_mask(self) -> Tensor | None:
        if self.rows.slots is None:
            return None
        sequence = self._sequence_of_slot
        differs = sequence[:, None, :, None] != sequence[:, None, None, :]
        return torch.zeros(differs.shape, device=sequence.device).masked_fill_(differs, -math.inf)

    def _band(self, window: int) -> Tensor:
        # A sequence is contiguous in its row, so slots are as far apart as tokens.
        slot = torch.arange(self.rows.length, device=self.cu_seqlens.device)
        distant = (slot[:, None] - slot).abs() > window
        of_rows = self.row_mask()
        mask = torch.zeros(1, 1, *distant.shape, device=distant.device) if of_rows is None else of_rows
        return mask.masked_fill(distant, -math.inf)
