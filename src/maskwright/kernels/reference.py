"""Functions of `ops` in plain PyTorch, which the faster implementations are tested against.

`attention` is for tests: `ops` computes it over rows (`row_attention`) where there are no kernels. The other
references are in `row_attention`, `cpu.linear` and `cross_entropy`.

T tokens, B sequences, L longest sequence, N heads, D head size, H = N D hidden size, E embedding size, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn

from maskwright.kernels.dropout import DropoutMask, dropout, dropout_add
from maskwright.kernels.sequences import Sequences


def attention(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, num_heads: int, mask: DropoutMask | None
) -> Tensor:
    """Pad the sequences to (B, N, L, D), and compute `dropout(softmax(Q K^T / sqrt(D))) V`."""
    longest, lengths = sequences.max_seqlen, sequences.cu_seqlens.long().diff()
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=query.device), lengths, output_size=len(query))
    position = torch.arange(len(query), device=query.device) - sequences.cu_seqlens[sequence]

    def pad(values: Tensor) -> Tensor:
        padded = values.new_zeros(len(lengths), longest, values.shape[1])
        padded = padded.index_put((sequence, position), values)
        return padded.view(len(lengths), longest, num_heads, values.shape[1] // num_heads).transpose(1, 2)

    scores = pad(query) @ pad(key).transpose(2, 3) / math.sqrt(query.shape[1] // num_heads)
    is_padding = torch.arange(longest, device=query.device) >= lengths[:, None]
    scores = scores.masked_fill(is_padding[:, None, None, :], -math.inf)
    probabilities = torch.softmax(scores, -1)
    if mask is not None:
        stride = mask_stride(longest)
        factors = mask.factors((len(lengths), num_heads, stride, stride))[:, :, :longest, :longest]
        probabilities = probabilities * factors.to(probabilities.dtype)
    context = (probabilities @ pad(value)).transpose(1, 2).flatten(2)
    return context[sequence, position]


def mask_stride(longest: int) -> int:
    """Return the side of a sequence's dropout mask: a power of two of at least 4, so that each row starts
    at a 64-bit random number (`DropoutMask`)."""
    return max(4, 1 << max(0, longest - 1).bit_length())


def dropout_add_norm(values: Tensor, residual: Tensor, norm: nn.LayerNorm, mask: DropoutMask | None) -> Tensor:
    """Return `norm(residual + dropout(values))`."""
    normed: Tensor = norm(dropout_add(values, residual, mask))
    return normed


def embeddings(
    ids: Tensor,
    position_ids: Tensor,
    segment_ids: Tensor,
    words: nn.Embedding,
    positions: nn.Embedding,
    segments: nn.Embedding | None,
    norm: nn.LayerNorm,
    mask: DropoutMask | None,
) -> Tensor:
    """Return `dropout(norm(word + position + segment))` (Devlin et al. 2019, figure 2).

    Args:
        ids, position_ids, segment_ids: Shape (T,), int64.
        words, positions: Tables of width E.
        segments: A table of one row is added to every token, whatever its segment (RoBERTa); None adds nothing
            (DistilBERT).
        norm: LayerNorm of E values.
        mask: Mask of the values; None drops nothing.

    Returns:
        Shape (T, E).
    """
    summed = words(ids) + positions(position_ids)
    if segments is not None:
        summed = summed + (segments(segment_ids) if segments.num_embeddings > 1 else segments.weight[0])
    return dropout(norm(summed), mask)
