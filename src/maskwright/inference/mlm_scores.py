"""The head that scores the vocabulary, for use alone: laid out for a processor, or the module as it is."""

from typing import Protocol, final

import torch
from torch import Tensor

from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.dense import pack
from maskwright.model.encoder import Encoder
from maskwright.model.packed.norm import Norm
from maskwright.model.states import packs
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling


class Scores(Protocol):
    """A masked-language-model head that is only used."""

    def __call__(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into scores of all vocabulary entries (M, V), fp32."""


def scores_of(
    head: MaskedLanguageModelingHead,
    encoder: Encoder,
    precision: ProductPrecision,
    output_matrix: Tensor | None = None,
) -> Scores:
    """Return the fastest implementation that scores the vocabulary.

    Args:
        head: The head, in evaluation mode.
        encoder: Its encoder.
        precision: Of the matmuls.
        output_matrix: Shape (V, E); None for the word embeddings.
    """
    matrix = encoder.word_embeddings.weight if output_matrix is None else output_matrix
    return (PackedHead if packs(encoder, precision) else PlainHead)(head, matrix, precision)


@final
class PackedHead:
    """A masked-language-model head that is only used. At one position it is a third of a base model's weights.

    Args:
        head: The head, in fp32 on the CPU.
        word_embeddings: The tied output matrix. Shape (V, E).
        precision: Of its products.
    """

    def __init__(self, head: MaskedLanguageModelingHead, word_embeddings: Tensor, precision: ProductPrecision) -> None:
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._dense = pack(head.dense.weight, head.dense.bias, precision, head.activation)
        self._norm = Norm(head.layer_norm)
        self._words = pack(word_embeddings, head.bias, precision)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into scores of all vocabulary entries (M, V), fp32."""
        return self._words(self._norm(self._dense(hidden.to(self._dtype)))).float()


@final
class PlainHead:
    """A masked-language-model head, called in a precision.

    Args:
        head: The head, in evaluation mode.
        word_embeddings: The tied output matrix. Shape (V, E).
        precision: Of the products of matrices.
    """

    def __init__(self, head: MaskedLanguageModelingHead, word_embeddings: Tensor, precision: ProductPrecision) -> None:
        self._head = head
        self._word_embeddings = word_embeddings
        self._autocast = precision == "bf16"

    def __call__(self, hidden: Tensor) -> Tensor:
        """Score the vocabulary (see `Scores`)."""
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=self._autocast):
            return MaskedLanguageModeling().logits(self._head, hidden, self._word_embeddings).float()
