"""The interface of this package: what models, heads and objectives compute with.

Other packages import this module and the switch in `setting` only (`lint-imports` checks it); which implementation
computes is decided here and in the functions that are imported here (docs/architecture.md, "What computes a layer?").

T tokens, B sequences, N heads, H hidden size.
"""

from torch import Tensor, nn

from maskwright.kernels import row_attention
from maskwright.kernels.activations import activation
from maskwright.kernels.copying import summed_copying_cross_entropy
from maskwright.kernels.cpu import attention as cpu_attention
from maskwright.kernels.cpu.encoder import (
    InferenceLayer,
    InferenceLayers,
    Precision,
    Sublayer,
    inference_layers,
    inference_problem,
)
from maskwright.kernels.cpu.int8_linear import Int8Linear, int8_problem
from maskwright.kernels.cpu.linear import feed_forward, gated_feed_forward, linear_qkv, pad_to_few_sizes
from maskwright.kernels.cuda import attention as cuda_attention
from maskwright.kernels.cuda import norm as cuda_norm
from maskwright.kernels.cuda.graphs import capture
from maskwright.kernels.divergences import summed_divergence, summed_relation_divergence
from maskwright.kernels.dropout import DropoutKey, DropoutMask, dropout, dropout_add
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import kernels_enabled
from maskwright.kernels.vocabulary_losses import LogitParts, summed_cross_entropy

__all__ = [
    "DropoutKey",
    "DropoutMask",
    "InferenceLayer",
    "InferenceLayers",
    "Int8Linear",
    "LogitParts",
    "Precision",
    "Sequences",
    "Sublayer",
    "activation",
    "attention",
    "capture",
    "dropout",
    "dropout_add",
    "dropout_add_norm",
    "feed_forward",
    "gated_feed_forward",
    "inference_layers",
    "inference_problem",
    "int8_problem",
    "linear_qkv",
    "pad_to_few_sizes",
    "summed_copying_cross_entropy",
    "summed_cross_entropy",
    "summed_divergence",
    "summed_relation_divergence",
]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    *,
    num_heads: int,
    dropout: DropoutMask | None = None,
    window: int | None = None,
) -> Tensor:
    """Return `dropout(softmax(Q K^T / sqrt(H / N))) V` of each head and sequence (Vaswani et al. 2017, section 3.2).

    With a `window`, a token attends to itself and to that many tokens on either side.

    Matmuls are in the precision of autocast, else of the inputs; the softmax is in fp32 at least. Which probabilities
    are dropped depends on the key, the site and the implementation.

    Query, key, value and the result have shape (T, H). `dropout` is the mask of the probabilities, None drops nothing.
    """
    if window is not None and window >= sequences.max_seqlen - 1:
        window = None
    arguments = query, key, value, sequences, num_heads, dropout
    if kernels_enabled() and cuda_attention.is_supported(query, num_heads):
        return cuda_attention.attention(*arguments, window)
    if window is None and kernels_enabled() and cpu_attention.is_supported(query, num_heads):
        return cpu_attention.attention(*arguments)
    return row_attention.attention(*arguments, window)


def dropout_add_norm(values: Tensor, residual: Tensor, norm: nn.LayerNorm, dropout: DropoutMask | None) -> Tensor:
    """Return `norm(residual + dropout(values))`: the end of a sublayer, post-norm (Vaswani et al. 2017, section 3.1).

    DEVIATION: PyTorch's autocast keeps the sum and the result in fp32. The GPU kernel keeps both in bf16, half the
    memory traffic, a tenth of a step; LOG.md has what it does to a run's loss. Shapes (T, H).
    """
    if kernels_enabled() and cuda_norm.is_supported(values, norm):
        return cuda_norm.dropout_add_norm(values, residual, norm, dropout)
    normed: Tensor = norm(dropout_add(values, residual, dropout))
    return normed
