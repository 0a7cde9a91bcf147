"""Vocabulary scores of a masked-language-model head at inference."""

from collections.abc import Callable

import torch
from torch import Tensor

from maskwright.core.types import ProductPrecision
from maskwright.kernels.cpu.dense import pack
from maskwright.model.encoder import Encoder
from maskwright.model.packed.norm import Norm
from maskwright.model.states import packs
from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling

Scores = Callable[[Tensor], Tensor]
"""Turns hidden states (M, H) into fp32 scores of all vocabulary entries (M, V)."""


def scores_of(
    head: MaskedLanguageModelingHead,
    encoder: Encoder,
    precision: ProductPrecision,
    output_matrix: Tensor | None = None,
) -> Scores:
    """Return the fastest implementation. At one position the head is a third of a base model's weights.

    Args:
        head: In evaluation mode.
        precision: Of the matmuls.
        output_matrix: Shape (V, E); None for the word embeddings.
    """
    matrix = encoder.word_embeddings.weight if output_matrix is None else output_matrix
    if packs(encoder, precision):
        return packed_scores(head, matrix, precision)

    def scores(hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return MaskedLanguageModeling().logits(head, hidden, matrix).float()

    return scores


def packed_scores(head: MaskedLanguageModelingHead, output_matrix: Tensor, precision: ProductPrecision) -> Scores:
    """Return the head with packed weights; it is in fp32 on the CPU."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    dense = pack(head.dense.weight, head.dense.bias, precision, head.activation)
    norm, words = Norm(head.layer_norm), pack(output_matrix, head.bias, precision)
    return lambda hidden: words(norm(dense(hidden.to(dtype)))).float()
