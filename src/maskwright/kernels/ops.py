"""The functions that have more than one implementation; nothing else in the package knows which one computes.

docs/architecture.md has a table of them. The setting `kernels` (`setting.py`) selects the reference or the fastest.

T tokens, B sequences, N heads, H hidden size, E embedding size, M targets, V vocabulary.
"""

from torch import Tensor, nn

from maskwright.kernels import reference, row_attention
from maskwright.kernels.cpu import attention as cpu_attention
from maskwright.kernels.cpu.encoder import Block, InferenceLayers, Precision, inference_layers, inference_problem
from maskwright.kernels.cpu.linear import activated_linear, linear_qkv, pad_positions, pad_rows
from maskwright.kernels.cross_entropy import Scores, summed_cross_entropy
from maskwright.kernels.cuda import attention as cuda_attention
from maskwright.kernels.cuda import norm as cuda_norm
from maskwright.kernels.cuda.graphs import capture
from maskwright.kernels.dropout import DropoutKey, DropoutMask, dropout
from maskwright.kernels.reference import embeddings
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import kernels_enabled

__all__ = [
    "Block",
    "DropoutKey",
    "DropoutMask",
    "InferenceLayers",
    "Precision",
    "Scores",
    "Sequences",
    "activated_linear",
    "attention",
    "capture",
    "dropout",
    "dropout_add_norm",
    "embeddings",
    "inference_layers",
    "inference_problem",
    "linear_qkv",
    "pad_positions",
    "pad_rows",
    "summed_cross_entropy",
]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    *,
    num_heads: int,
    dropout: DropoutMask | None = None,
) -> Tensor:
    """Return `dropout(softmax(Q K^T / sqrt(H / N))) V` of each head and sequence (Vaswani et al. 2017, section 3.2).

    Matmuls are in the precision of autocast, else of the inputs; the softmax is in fp32 at least. Which probabilities
    are dropped depends on the key, the call and the implementation.

    Args:
        query, key, value: Shape (T, H).
        sequences: Which tokens attend to each other.
        num_heads: N.
        dropout: Mask of the probabilities; None drops nothing.

    Returns:
        Shape (T, H).
    """
    arguments = query, key, value, sequences, num_heads, dropout
    if kernels_enabled() and cuda_attention.is_supported(query, num_heads):
        return cuda_attention.attention(*arguments)
    if kernels_enabled() and cpu_attention.is_supported(query, num_heads):
        return cpu_attention.attention(*arguments)
    return row_attention.attention(*arguments)


def dropout_add_norm(values: Tensor, residual: Tensor, norm: nn.LayerNorm, dropout: DropoutMask | None) -> Tensor:
    """Return `norm(residual + dropout(values))`: the end of a sublayer, post-norm (Vaswani et al. 2017, section 3.1).

    DEVIATION: PyTorch's autocast keeps the sum and the result in fp32. The GPU kernel keeps both in bf16, half the
    memory traffic, a tenth of a step; LOG.md has what it does to a run's loss.

    Args:
        values, residual: Shape (T, H).
        norm: LayerNorm of H values.
        dropout: Mask of the values; None drops nothing.

    Returns:
        Shape (T, H).
    """
    if kernels_enabled() and cuda_norm.is_supported(values, norm):
        return cuda_norm.dropout_add_norm(values, residual, norm, dropout)
    return reference.dropout_add_norm(values, residual, norm, dropout)
