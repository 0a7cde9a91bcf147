"""The embeddings for use alone, exact: their sum, LayerNorm and, where there is one, the projection to H."""

from typing import final

from torch import Tensor

from maskwright.core.tensors import PackedBatch
from maskwright.kernels.cpu.dense import pack
from maskwright.model.embeddings import sum_embeddings
from maskwright.model.encoder import Encoder
from maskwright.model.packed.norm import Norm


@final
class Embedding:
    """What the first layer is given.

    Args:
        encoder: Its tables are used as they are.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._norm = Norm(encoder.embedding_norm)
        projection = encoder.embedding_projection
        self._projection = None if projection is None else pack(projection.weight, projection.bias, "fp32")

    def __call__(self, batch: PackedBatch) -> Tensor:
        """Look up the tokens of a batch. Shape (T, H), fp32."""
        encoder = self._encoder
        summed = sum_embeddings(
            batch,
            encoder.word_embeddings,
            encoder.position_embeddings,
            encoder.segment_embeddings,
            encoder.config.position_offset,
        )
        return self.finish(summed)

    def finish(self, summed: Tensor) -> Tensor:
        """Normalise and project what was added up. Shape (T, E) to (T, H), fp32."""
        hidden = self._norm(summed)
        return hidden if self._projection is None else self._projection(hidden)
