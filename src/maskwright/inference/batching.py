"""Many texts through the encoder: longest first, texts of like length together, no padding between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from maskwright.core.tensors import FlatBatch
from maskwright.core.types import IntArray
from maskwright.training.packing import pack


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some of the texts, ready for the encoder.

    Attributes:
        batch: The flat tokens.
        texts: Shape (B,), which text each sequence of the batch is.
        starts: Shape (B,), where in the stream each sequence begins.
    """

    batch: FlatBatch
    texts: IntArray
    starts: IntArray


def batches(sequences: Sequence[IntArray], *, tokens: int, device: torch.device) -> Iterator[TextBatch]:
    """Lay out all sequences, special tokens in place. The cut depends on their lengths alone.

    Args:
        sequences: Token ids of each text, each of shape (L,), L at least 1.
        tokens: Real tokens a batch may have; a longer sequence is a batch of its own.
        device: Where the tensors are put.
    """
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    # The longest come first: if memory does not suffice, that shows at once.
    by_length = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[by_length])
    first, done = 0, 0
    while first < len(by_length):
        last = max(first + 1, int(np.searchsorted(ends, done + tokens, side="right")))
        chosen = by_length[first:last]
        yield _lay_out([sequences[text] for text in chosen], chosen, device)
        first, done = last, int(ends[last - 1])


def _lay_out(sequences: list[IntArray], texts: IntArray, device: torch.device) -> TextBatch:
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    row_length = int(lengths.max())
    packing = pack(lengths, row_length)
    starts, row_slots = packing.in_stream(lengths, row_length)
    starts, lengths = starts[packing.order], lengths[packing.order]

    def given(values: IntArray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)

    batch = FlatBatch(
        ids=given(np.concatenate([sequences[number] for number in packing.order])),
        position_ids=given(np.arange(len(row_slots)) - np.repeat(starts, lengths)),
        segment_ids=torch.zeros(len(row_slots), dtype=torch.int64, device=device),
        sequence_ids=given(np.repeat(np.arange(len(lengths)), lengths)),
        first_tokens=given(starts),
        row_length=row_length,
        num_tokens=len(row_slots),
        row_slots=given(row_slots),
        num_rows=packing.num_rows,
    )
    return TextBatch(batch, texts[packing.order], starts)
