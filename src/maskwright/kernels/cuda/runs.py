"""Attention over the runs of a stream on a GPU: our own kernels for short runs, FlashAttention-2 for longer ones.

Dao (2023), "FlashAttention-2", by PyTorch's operators, which take runs of any length, dropout and no masks.

T tokens, S runs, N heads, H hidden size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda import attention, launches
from maskwright.kernels.dropout import DropoutKey, RandomWords


@dataclass(frozen=True, slots=True)
class GpuRuns:
    """Where runs of tokens of one sequence lie.

    Attributes:
        offsets: Shape (S+1,), int32, where they begin and end, T at last; behind the last, runs may be empty.
        slots: Shape (S,), int64, the slot of each run's first token: its place in the masks of dropout.
        longest: No run is longer.
        row_length: R.
        num_rows: Rows that the slots are counted through.
    """

    offsets: Tensor
    slots: Tensor
    longest: int
    row_length: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """How many heads there are, and what they drop."""

    num_heads: int
    rate: float
    key: DropoutKey | None
    call: int


def takes_own(row_length: int, head_size: int) -> bool:
    """Say whether runs of at most a row are attended over by our own kernel."""
    return row_length <= attention.LONGEST_RUN and head_size in (16, 32, 64, 128)


def starts_of(batch: FlatBatch) -> Tensor:
    """Return where the sequences of a stream begin, in the order in which they lie. Shape (B,).

    `FlatBatch.first_tokens` has them in the order of their numbers, which is another in fine-tuning.
    """
    return torch.sort(batch.first_tokens).values


def runs_of(batch: FlatBatch) -> GpuRuns:
    """Return the runs of a stream of sequences (`FlatBatch.row_slots`), without waiting for the device.

    Args:
        batch: What fills it up behind the last sequence becomes a run too, in parts no longer than a row.
    """
    assert batch.row_slots is not None
    assert batch.row_length is not None
    assert batch.num_rows is not None
    first, total, length = starts_of(batch), len(batch.ids), batch.row_length
    ends = [*range(batch.num_tokens, total, length), total]
    tail = torch.tensor(ends, dtype=torch.int32).to(first.device, non_blocking=True)
    slots = batch.row_slots.index_select(0, first)
    return GpuRuns(
        offsets=torch.cat([first.to(torch.int32), tail]),
        slots=torch.cat([slots, slots.new_zeros(len(ends) - 1)]),
        longest=length,
        row_length=length,
        num_rows=batch.num_rows,
    )


def attend(qkv: Tensor, runs: GpuRuns, drawn: Drawn) -> tuple[Tensor, Sequence[Tensor]]:
    """Mix each token's values over its run.

    Args:
        qkv: Queries, keys and values side by side. Shape (T, 3 H), bfloat16.
        runs: Where the runs lie.
        drawn: What is dropped.

    Returns:
        Shape (T, H), and what `attend_backward` needs beside it.
    """
    head_size = qkv.shape[1] // (3 * drawn.num_heads)
    if takes_own(runs.row_length, head_size):
        mixed, logsumexp = attention.forward(
            qkv,
            runs.offsets,
            runs.slots,
            num_heads=drawn.num_heads,
            longest=runs.longest,
            row_length=runs.row_length,
            words=_words(runs, drawn),
            rate=drawn.rate,
        )
        return mixed, (logsumexp,)
    queries, keys, values = _heads(qkv, drawn.num_heads)
    mixed, logsumexp, seed, offset, _ = torch.ops.aten._flash_attention_forward(
        queries,
        keys,
        values,
        runs.offsets,
        runs.offsets,
        runs.longest,
        runs.longest,
        drawn.rate,
        False,
        False,
        scale=1 / math.sqrt(head_size),
    )
    return mixed.reshape(len(qkv), -1), (logsumexp, seed, offset)


def attend_backward(
    slope: Tensor, qkv: Tensor, mixed: Tensor, kept: Sequence[Tensor], runs: GpuRuns, drawn: Drawn
) -> tuple[Tensor, Tensor]:
    """Return the slope of `qkv`, shape (T, 3 H), and its sums over tokens, shape (3 H,), fp32.

    Args:
        slope: Of what was mixed. Shape (T, H), contiguous.
        qkv: As `attend` took it.
        mixed: What `attend` returned.
        kept: What `attend` returned with it.
        runs: As `attend` took them.
        drawn: As `attend` took it.
    """
    head_size = qkv.shape[1] // (3 * drawn.num_heads)
    if takes_own(runs.row_length, head_size):
        return attention.backward(
            slope,
            qkv,
            mixed,
            kept[0],
            runs.offsets,
            runs.slots,
            num_heads=drawn.num_heads,
            longest=runs.longest,
            row_length=runs.row_length,
            words=_words(runs, drawn),
            rate=drawn.rate,
        )
    queries, keys, values = _heads(qkv, drawn.num_heads)
    logsumexp, seed, offset = kept
    of_each = torch.ops.aten._flash_attention_backward(
        slope.view(queries.shape),
        queries,
        keys,
        values,
        mixed.view(queries.shape),
        logsumexp,
        runs.offsets,
        runs.offsets,
        runs.longest,
        runs.longest,
        drawn.rate,
        False,
        seed,
        offset,
        scale=1 / math.sqrt(head_size),
    )
    return launches.join(*of_each[:3])


def _heads(qkv: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    return qkv.view(len(qkv), 3, num_heads, -1).unbind(1)


def _words(runs: GpuRuns, drawn: Drawn) -> RandomWords | None:
    if drawn.key is None or not drawn.rate:
        return None
    shape = (runs.num_rows, drawn.num_heads, runs.row_length, runs.row_length)
    return RandomWords.of(torch.Size(shape), drawn.key, drawn.call)
