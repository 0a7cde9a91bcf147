"""Many texts through the encoder: longest first, texts of like length together, no padding between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from maskwright.core.batching import by_length
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import IntArray


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some of the texts, with the number of each sequence's text and its first token in the batch, shape (B,)."""

    batch: PackedBatch
    texts: IntArray
    starts: IntArray


def batches(
    sequences: Sequence[IntArray], segments: Sequence[IntArray] | None = None, *, tokens: int, device: torch.device
) -> Iterator[TextBatch]:
    """Batch all sequences: token ids with special ones, shape (L,), L at least 1, and segment ids, None for 0.

    A batch has at most `tokens` (`core.batching.by_length`). The cut depends on the lengths alone.
    """
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    for texts in by_length(lengths, tokens):
        cu_seqlens = np.append(0, np.cumsum(lengths[texts]))
        ids = np.concatenate([sequences[text] for text in texts]).astype(np.int64, copy=False)
        segment_ids = np.zeros_like(ids) if segments is None else np.concatenate([segments[text] for text in texts])
        batch = PackedBatch(
            ids=torch.from_numpy(ids).to(device),
            position_ids=torch.from_numpy(np.arange(len(ids)) - np.repeat(cu_seqlens[:-1], lengths[texts])).to(device),
            segment_ids=torch.from_numpy(segment_ids).to(device),
            cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)).to(device),
            max_seqlen=int(lengths[texts].max()),
        )
        yield TextBatch(batch, texts, cu_seqlens[:-1])
