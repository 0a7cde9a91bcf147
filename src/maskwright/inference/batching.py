"""Many texts through the encoder: longest first, texts of like length together, packed into rows."""

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
        starts: Shape (B,), slot of each sequence's first token.
    """

    batch: FlatBatch
    texts: IntArray
    starts: IntArray


def batches(sequences: Sequence[IntArray], *, pad: int, tokens: int, device: torch.device) -> Iterator[TextBatch]:
    """Lay out all sequences, special tokens in place. The cut depends on their lengths alone.

    Args:
        sequences: Token ids of each text, each of shape (L,), L at least 1.
        pad: What fills a row's unused slots.
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
        yield _lay_out([sequences[text] for text in chosen], chosen, pad, device)
        first, done = last, int(ends[last - 1])


def _lay_out(sequences: list[IntArray], texts: IntArray, pad: int, device: torch.device) -> TextBatch:
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    row_length = int(lengths.max())
    packing = pack(lengths, row_length)
    lengths = lengths[packing.order]
    starts = packing.rows * row_length + packing.offsets
    ends = np.cumsum(lengths)
    counted = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    slots = np.repeat(starts, lengths) + counted
    size = packing.num_rows * row_length

    def spread(values: IntArray, filler: int) -> torch.Tensor:
        laid = np.full(size, filler, dtype=np.int64)
        laid[slots] = values
        return torch.from_numpy(laid).to(device)

    batch = FlatBatch(
        ids=spread(np.concatenate([sequences[number] for number in packing.order]), pad),
        position_ids=spread(counted, 0),
        segment_ids=torch.zeros(size, dtype=torch.int64, device=device),
        sequence_ids=spread(np.repeat(np.arange(len(lengths)), lengths), -1),
        first_tokens=torch.from_numpy(starts).to(device),
        row_length=row_length,
        num_tokens=len(slots),
    )
    return TextBatch(batch, texts[packing.order], starts)
