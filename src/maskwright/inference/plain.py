"""The trained modules as they are, for devices that nothing is laid out for."""

from typing import final

import torch
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.encoder.encoder import Encoder
from maskwright.inference.precision import Chosen
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling, MaskedLanguageModelingHead


@final
class PlainEncoder:
    """An encoder, called in a precision.

    Args:
        encoder: The encoder, in evaluation mode.
        precision: Of the products of matrices.
    """

    def __init__(self, encoder: Encoder, precision: Chosen) -> None:
        self._encoder = encoder
        self._autocast = precision == "bf16"

    def __call__(self, batch: FlatBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch (see `States`)."""
        with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=self._autocast):
            hidden: Tensor = self._encoder(batch).hidden.float()
        return hidden if read is None else hidden[read]


@final
class PlainHead:
    """A masked-language-model head, called in a precision.

    Args:
        head: The head, in evaluation mode.
        word_embeddings: The tied output matrix. Shape (V, E).
        precision: Of the products of matrices.
    """

    def __init__(self, head: MaskedLanguageModelingHead, word_embeddings: Tensor, precision: Chosen) -> None:
        self._head = head
        self._word_embeddings = word_embeddings
        self._autocast = precision == "bf16"

    def __call__(self, hidden: Tensor) -> Tensor:
        """Score the vocabulary (see `Scores`)."""
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=self._autocast):
            return MaskedLanguageModeling().logits(self._head, hidden, self._word_embeddings).float()
