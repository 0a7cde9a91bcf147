"""Streams that were not packed into rows, cut into rows: one sequence a row, filled up to the longest."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch


@dataclass(frozen=True, slots=True)
class CutBatch:
    """A batch in rows, and where each token of the stream it came from lies.

    Attributes:
        batch: The rows.
        places: Shape (T,), the offset in `batch` of each token of the old stream.
    """

    batch: FlatBatch
    places: Tensor


def cut_into_rows(batch: FlatBatch) -> CutBatch:
    """Lay each sequence of a flat stream into a row of its own.

    Args:
        batch: A batch whose tokens of one sequence lie side by side. Filler between them keeps its number -1.
    """
    sequence_ids = batch.sequence_ids
    begins = torch.ones_like(sequence_ids)
    begins[1:] = sequence_ids[1:] != sequence_ids[:-1]
    row = begins.cumsum(0) - 1
    starts = begins.nonzero().squeeze(1)
    column = torch.arange(len(sequence_ids), device=sequence_ids.device) - starts[row]
    row_length = int(column.max()) + 1
    places = row * row_length + column
    size = len(starts) * row_length

    def laid(values: Tensor, filler: int) -> Tensor:
        return values.new_full((size,), filler).index_copy_(0, places, values)

    rows = replace(
        batch,
        ids=laid(batch.ids, 0),
        position_ids=laid(batch.position_ids, 0),
        segment_ids=laid(batch.segment_ids, 0),
        sequence_ids=laid(sequence_ids, -1),
        first_tokens=places[batch.first_tokens],
        row_length=row_length,
        row_slots=None,
        num_rows=None,
    )
    return CutBatch(rows, places)
