"""Flat batches for tests, and a small encoder whose attention is far from uniform."""

from dataclasses import replace

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.attention import Backend
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.initialization import initialize

VOCAB_SIZE = 101
SMALL = EncoderConfig(
    hidden_size=48, num_layers=3, num_heads=4, intermediate_size=96, max_positions=32, initializer_range=0.2
)
PACKED = ((10, 7, 3), (24,), (20, 3), (5, 5, 5, 5, 4))


def packed(rows: tuple[tuple[int, ...], ...], row_length: int | None, key: int | None = None) -> FlatBatch:
    """Pack random sequences of the given lengths; a row length of None leaves the stream uncut, unfilled.

    The tokens of a sequence depend on its number alone, not on where it lies.
    """
    columns: list[list[Tensor]] = [[], [], [], []]
    first_tokens, number, offset = [], 0, 0
    for row in rows:
        for length in row:
            draws = torch.Generator().manual_seed(number)
            first_tokens.append(offset)
            ids = torch.randint(5, VOCAB_SIZE, (length,), generator=draws)
            positions = torch.arange(length)
            _extend(columns, ids, positions, (positions > length // 2).long(), torch.full((length,), number))
            number, offset = number + 1, offset + length
        filler = 0 if row_length is None else row_length - sum(row)
        zeros = torch.zeros(filler, dtype=torch.int64)
        _extend(columns, zeros, zeros, zeros, zeros - 1)
        offset += filler
    ids, positions, segments, sequences = (torch.cat(parts) for parts in columns)
    return FlatBatch(
        ids=ids,
        position_ids=positions,
        segment_ids=segments,
        sequence_ids=sequences,
        first_tokens=torch.tensor(first_tokens),
        row_length=row_length,
        num_tokens=sum(map(sum, rows)),
        dropout_key=key,
    )


def without_filler(batch: FlatBatch, behind: int = 0) -> FlatBatch:
    """Take the filler of rows out of a stream that is the rows themselves, and put some behind the last token."""
    slots = (batch.sequence_ids >= 0).nonzero().squeeze(1)

    def taken(values: Tensor, filler: int) -> Tensor:
        return torch.cat([values[slots], values.new_full((behind,), filler)])

    return replace(
        batch,
        ids=taken(batch.ids, 0),
        position_ids=taken(batch.position_ids, 0),
        segment_ids=taken(batch.segment_ids, 0),
        sequence_ids=taken(batch.sequence_ids, -1),
        first_tokens=torch.searchsorted(slots, batch.first_tokens),
        row_slots=slots,
        num_rows=len(batch.ids) // (batch.row_length or 1),
    )


def _extend(columns: list[list[Tensor]], *values: Tensor) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def encoder(config: EncoderConfig = SMALL, backend: Backend | None = None, seed: int = 1) -> Encoder:
    """Build and initialize an encoder."""
    model = Encoder(config, VOCAB_SIZE, backend)
    initialize(model, config, seed)
    return model
