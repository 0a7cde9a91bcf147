"""Attention over padded sequences in plain PyTorch, which the kernels are compared with, dropout included."""

import math

import torch
from torch import Tensor

from maskwright.kernels.cuda.attention import mask_stride
from maskwright.kernels.dropout import DropoutMask
from maskwright.kernels.sequences import Sequences


def padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    num_heads: int,
    mask: DropoutMask | None,
    window: int | None = None,
) -> Tensor:
    """Pad B sequences to (B, N, L, D), L tokens of the longest, and compute `dropout(softmax(Q K^T / sqrt(D))) V`.

    The mask is laid out as the Triton kernels read it.
    """
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
    if window is not None:
        column = torch.arange(longest, device=query.device)
        # Padding attends to something, so that its gradients are not NaN.
        distant = ((column[:, None] - column).abs() > window) & ~is_padding[:, None, :, None]
        scores = scores.masked_fill(distant, -math.inf)
    probabilities = scores.softmax(-1)
    if mask is not None:
        stride = mask_stride(longest)
        factors = mask.factors((len(lengths), num_heads, stride, stride))[:, :, :longest, :longest]
        probabilities = probabilities * factors.to(probabilities.dtype)
    context = (probabilities @ pad(value)).transpose(1, 2).flatten(2)
    return context[sequence, position]
