"""Sizes of captured passes: rounded up, so that one serves many batches."""

from dataclasses import dataclass

from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.dropout import DropoutKey

_CLOSE = 1.04
"""Tokens of a pass over those of a batch that it fits closely."""
_PARTS = 64
"""Sizes are multiples of about this part of themselves."""


@dataclass(frozen=True, slots=True)
class PassSize:
    """What a graph is made for; `read` is None where all tokens are."""

    tokens: int
    runs: int
    rows: int
    row_length: int
    read: int | None
    drops: bool

    @classmethod
    def of(cls, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None, room: float = 1.0) -> "PassSize":
        """Return the size of the graph to make for a batch, and for others that are larger by a factor of `room`."""
        assert batch.row_length is not None
        assert batch.num_rows is not None
        tokens = _rounded(int(room * len(batch.ids)), _PARTS)
        few = _few(tokens)
        # Filler is runs too, none longer than a row.
        runs = int(room * len(batch.first_tokens)) + -(-(tokens - batch.num_tokens) // batch.row_length)
        return cls(
            tokens=tokens,
            # Empty runs and random numbers cost next to nothing: room for batches that are cut otherwise.
            runs=_multiple(runs + few // 4, few),
            rows=_multiple(int(room * batch.num_rows) + -(-tokens // batch.row_length) // 16, 8),
            row_length=batch.row_length,
            read=None if read is None else _multiple(int(room * len(read)) + few // 4, few),
            drops=key is not None,
        )

    def takes(self, batch: FlatBatch, key: DropoutKey | None, read: Tensor | None, most: float = _CLOSE) -> bool:
        """Say whether a graph of this size computes a batch, and at most a factor of `most` of its tokens."""
        assert batch.row_length is not None
        assert batch.num_rows is not None
        filler = -(-(self.tokens - batch.num_tokens) // batch.row_length)
        return (
            len(batch.ids) <= self.tokens <= max(len(batch.ids) + 16, most * len(batch.ids))
            and len(batch.first_tokens) + filler <= self.runs
            and batch.num_rows <= self.rows
            and batch.row_length == self.row_length
            and (read is None) == (self.read is None)
            and (read is None or self.read is None or len(read) <= self.read <= 2 * len(read) + 4 * _few(self.tokens))
            and (key is not None) == self.drops
        )


def _few(tokens: int) -> int:
    return max(16, tokens // _PARTS)


def _rounded(count: int, parts: int) -> int:
    # Up to a multiple of the power of two that is between a `parts`-th and half of that.
    return _multiple(count, max(16, 1 << max(0, (count // parts).bit_length() - 1)))


def _multiple(count: int, step: int) -> int:
    return -(-count // step) * step
