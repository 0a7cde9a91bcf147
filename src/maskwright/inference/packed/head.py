"""The head that scores the vocabulary, for use alone on a processor."""

from typing import final

import torch
from torch import Tensor

from maskwright.inference.packed.dense import pack
from maskwright.inference.packed.norm import Norm
from maskwright.inference.precision import Chosen
from maskwright.pretext.objectives.mlm import MaskedLanguageModelingHead


@final
class PackedHead:
    """A masked-language-model head that is only used. At one position it is a third of a base model's weights.

    Args:
        head: The head, in fp32 on the CPU.
        word_embeddings: The tied output matrix. Shape (V, E).
        precision: Of its products.
    """

    def __init__(self, head: MaskedLanguageModelingHead, word_embeddings: Tensor, precision: Chosen) -> None:
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._dense = pack(head.dense.weight, head.dense.bias, precision, head.activation)
        self._norm = Norm(head.layer_norm)
        self._words = pack(word_embeddings, head.bias, precision)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into scores of all vocabulary entries (M, V), fp32."""
        return self._words(self._norm(self._dense(hidden.to(self._dtype)))).float()
