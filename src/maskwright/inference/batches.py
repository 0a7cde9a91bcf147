"""Many texts through an encoder: longest first, texts of like length together, no padding between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.batching import by_length
from maskwright.core.errors import ConversionError
from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import IntArray, MatmulPrecision
from maskwright.model.encoder import Encoder
from maskwright.model.inference_encoder import InferenceEncoder

BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}
"""Tokens of a forward pass by type of device, a few hundred MB for a base model. On a CPU 1,024 take 0.87 of the time
of 8,192: they fit the caches, and lengths in a batch are more alike."""


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some of the texts, with the number of each sequence's text and its first token in the batch, shape (B,)."""

    batch: PackedBatch
    texts: IntArray
    starts: IntArray


def batches(
    sequences: Sequence[IntArray],
    segments: Sequence[IntArray] | None = None,
    *,
    tokens: int,
    device: torch.device,
    share: slice = slice(None),
) -> Iterator[TextBatch]:
    """Batch all sequences: token ids with special ones, shape (L,), L at least 1, and segment ids, None for 0.

    A batch has at most `tokens` (`core.batching.by_length`). The cut depends on the lengths alone. `share` selects some
    of the batches.
    """
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    for texts in by_length(lengths, tokens)[share]:
        ids = np.concatenate([sequences[text] for text in texts])
        segment_ids = np.zeros_like(ids) if segments is None else np.concatenate([segments[text] for text in texts])
        starts = np.cumsum(lengths[texts]) - lengths[texts]
        yield TextBatch(PackedBatch.of(ids, segment_ids, lengths[texts], device=device), texts, starts)


@final
class TextEncoder:
    """Hidden states of token ids, computed in batches by the fastest code for the device and the precision.

    The weights may be copied: later changes of the encoder's may have no effect. Results are deterministic. In another
    batch a text's hidden states agree to within rounding (about 1e-6 in fp32).
    """

    def __init__(self, encoder: Encoder, precision: MatmulPrecision) -> None:
        self.device = encoder.word_embeddings.weight.device
        self._encoder = InferenceEncoder(encoder, precision)
        self.precision: MatmulPrecision = self._encoder.precision

    def encode(
        self,
        sequences: Sequence[IntArray],
        positions: Sequence[IntArray] | None = None,
        *,
        segments: Sequence[IntArray] | None = None,
        share: slice = slice(None),
    ) -> Iterator[tuple[TextBatch, Tensor]]:
        """Yield batches (see `batches`) with the hidden states of all tokens, or of each text's positions.

        Hidden states are in fp32, shape (M, H), in the order of the texts of a batch.
        """
        device, tokens = self.device, BATCH_TOKENS[self.device.type]
        for batch in batches(sequences, segments, tokens=tokens, device=device, share=share):
            if positions is None:
                yield batch, self._encoder(batch.batch)
            else:
                slots = [start + positions[text] for text, start in zip(batch.texts, batch.starts, strict=True)]
                yield batch, self._encoder(batch.batch, torch.from_numpy(np.concatenate(slots)).to(device))

    def encode_positions(
        self,
        sequences: Sequence[IntArray],
        positions: Sequence[IntArray],
        *,
        segments: Sequence[IntArray] | None = None,
        share: slice = slice(None),
    ) -> Iterator[tuple[TextBatch, IntArray, Tensor]]:
        """Yield batches, indices (M,) of their positions, counted through all texts, and hidden states (M, H)."""
        counts = np.array([len(each) for each in positions], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        for batch, hidden in self.encode(sequences, positions, segments=segments, share=share):
            yield batch, concatenated_ranges(starts[batch.texts], counts[batch.texts]), hidden


def check_finite(scores: NDArray[Any]) -> None:
    """Raise ConversionError if the results of a model contain NaN or infinity."""
    if not np.isfinite(scores).all():
        raise ConversionError(
            "the model computes NaN or infinite values",
            hint="Its training diverged or its weights are damaged: choose an earlier checkpoint or another model",
        )
