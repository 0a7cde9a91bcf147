"""What all layers share of attention: which backend computes it, and who may look at whom.

The backends of `attention.attend`:

- "rows": batched matrix products and a softmax over rows of equal length. Takes keyed dropout.
- "sdpa": PyTorch's fused attention over the same rows; never writes the (R, R) scores to memory.
- "jagged": PyTorch's fused attention over the sequences themselves, on a GPU in half precision: no mask.
- "kernels": whole sublayers by Triton kernels (`cuda.sublayers`), in training on a GPU in bfloat16; not for `attend`.
- "reference": one sequence after the other, for tests.

T tokens, R row length, D head size, S runs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda.rounded import OnGpu
from maskwright.kernels.dropout import DropoutKey

Backend = Literal["rows", "sdpa", "jagged", "kernels", "reference"]
DRAWING_FROM_WORDS: frozenset[Backend] = frozenset({"rows", "reference"})
"""Backends of `attend` that draw what is dropped from the key's random words (`dropout.RandomWords`); the others'
kernels draw their own, seeded by the key."""

# Measured on two CPU cores, heads of 64, forward and backward: at R = 128 both take the same time with MKL
# and the rows a quarter with oneDNN; at R = 512 the fused kernel needs two thirds of the time, at R = 1024
# half.
_LONGEST_ROW_FOR_PRODUCTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs of tokens that attend to each other.

    Attributes:
        offsets: Where they begin and end. Shape (S+1,), int64, from 0 to T.
        real: Whether they are tokens, not padding, whose results are zero. Shape (S,), bool.
        slots: Slot of each run's first token, counted through all rows: dropout is keyed by a token's place in its row.
            Shape (S,), int64; no real run crosses the end of its row.
        row_length: R, slots of a row.
        num_rows: How many rows there are.
    """

    offsets: Tensor
    real: Tensor
    slots: Tensor
    row_length: int
    num_rows: int

    def squares(self, num_heads: int) -> torch.Size:
        """Return the shape of the squares of pairs whose bits are drawn: (rows, N, R, R)."""
        return torch.Size((self.num_rows, num_heads, self.row_length, self.row_length))


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What all layers of one forward pass share.

    Attributes:
        backend: How attention is computed.
        row_length: R.
        mask: Shape (number of rows, 1, R, R), 0 where a token may look and -inf where not; None where all of a row may.
        row_slots: As in `FlatBatch`; None where the stream is the rows themselves ("rows", "sdpa").
        num_rows: How many rows there are, where that is asked ("rows", "sdpa").
        offsets: Shape (S+1,), where the runs of tokens of one sequence begin and end ("jagged").
        longest: At least the length of the longest run.
        runs: The same for "reference".
        on_gpu: The same for "kernels", and what else its layers share.
    """

    backend: Backend
    row_length: int
    mask: Tensor | None = None
    row_slots: Tensor | None = None
    num_rows: int = 0
    offsets: Tensor | None = None
    longest: int = 0
    runs: Runs | None = None
    on_gpu: OnGpu | None = None


@dataclass(frozen=True, slots=True)
class Heads:
    """How many heads, and what they drop (see `attention.attend`).

    Attributes:
        number: N.
        rate: Share of the probabilities dropped.
        key: Key of the micro-batch's masks; None drops nothing.
        call: Number of this call within the forward pass.
    """

    number: int
    rate: float
    key: DropoutKey | None
    call: int


def choose_backend(row_length: int, device_type: str, dtype: torch.dtype, *, drops: bool) -> Backend:
    """Return the fastest backend that can do what is asked.

    Args:
        row_length: R.
        device_type: "cpu", "cuda", ...
        dtype: Precision of the matmuls.
        drops: Whether attention probabilities are dropped. PyTorch's fused kernel cannot drop them on a CPU.
    """
    if device_type == "cuda":
        return "jagged" if dtype in (torch.float16, torch.bfloat16) else "sdpa"
    if device_type != "cpu":
        return "rows" if drops else "sdpa"
    return "rows" if drops or row_length <= _LONGEST_ROW_FOR_PRODUCTS else "sdpa"


def _num_rows(batch: FlatBatch, row_length: int) -> int:
    assert (batch.num_rows is None) == (batch.row_slots is None), "both say how a stream lies in its rows"
    return len(batch.ids) // row_length if batch.num_rows is None else batch.num_rows


def plan_attention(batch: FlatBatch, backend: Backend, dtype: torch.dtype) -> AttentionPlan:
    """Prepare what all layers share.

    Args:
        batch: A batch cut into rows (`row_length` is not None).
        backend: From `choose_backend`.
        dtype: Precision of the mask.
    """
    if batch.row_length is None:
        raise ValueError("attention needs a batch cut into rows: see `rows.cut_into_rows`")
    row_length, slots = batch.row_length, batch.row_slots
    if backend == "jagged":
        offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
        # Filler behind the last sequence is a run too, which may be longer than a short row.
        longest = max(row_length, len(batch.ids) - batch.num_tokens)
        return AttentionPlan(backend, row_length, offsets=offsets, longest=longest)
    num_rows = _num_rows(batch, row_length)
    if backend == "reference":
        return AttentionPlan(backend, row_length, runs=_runs(batch, row_length, num_rows))
    if batch.num_tokens == len(batch.ids) == num_rows * row_length:
        slots = None  # No filler: the stream is the rows themselves.
    if batch.num_tokens == num_rows * row_length and len(batch.first_tokens) == num_rows:
        return AttentionPlan(backend, row_length, row_slots=slots, num_rows=num_rows)
    rows = batch.sequence_ids
    if slots is not None:
        rows = rows.new_full((num_rows * row_length,), -1).index_copy_(0, slots, rows[: len(slots)])
    rows = rows.view(num_rows, row_length)
    # Filler has the number -1 of its own kind and looks at itself only, so that no softmax is over nothing.
    apart = rows[:, None, :, None] != rows[:, None, None, :]
    mask = torch.zeros(apart.shape, dtype=dtype, device=rows.device).masked_fill_(apart, -math.inf)
    return AttentionPlan(backend, row_length, mask=mask, row_slots=slots, num_rows=num_rows)


def _runs(batch: FlatBatch, row_length: int, num_rows: int) -> Runs:
    slots = batch.row_slots
    offsets = run_offsets(batch.sequence_ids, row_length if slots is None else None)
    begins = offsets[:-1]
    real = batch.sequence_ids[begins] >= 0
    if slots is not None:
        # Filler behind the last token lies in no row.
        begins = torch.cat([slots, slots.new_zeros(1)])[begins.clamp(max=len(slots))]
    return Runs(offsets=offsets, real=real, slots=begins, row_length=row_length, num_rows=num_rows)


def run_offsets(sequence_ids: Tensor, row_length: int | None) -> Tensor:
    """Return where runs of equal sequence numbers begin and end; a row's end ends a run. Shape (S+1,).

    Args:
        sequence_ids: Shape (T,).
        row_length: R; None where the stream is not the rows themselves.
    """
    begins = torch.ones_like(sequence_ids, dtype=torch.bool)
    begins[1:] = sequence_ids[1:] != sequence_ids[:-1]
    if row_length is not None:
        begins[::row_length] = True
    starts = begins.nonzero().squeeze(1)
    return torch.cat([starts, starts.new_tensor([len(sequence_ids)])])
