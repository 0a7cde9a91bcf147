"""Blocks compiled but for their attention, for training on a GPU: there each small kernel between two products reads
and writes all of a layer's values, and compiled they are few.

Attention stays as it is, drawing the masks of dropout too; so does all that runs without gradients. Parameters, their
names and the blocks' classes do not change. Not measured on a GPU.

T tokens, W of them read, H hidden size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from maskwright.core.tensors import activation
from maskwright.encoder.attention import AttentionPlan
from maskwright.encoder.block import AttentionBlock, FeedForwardBlock
from maskwright.encoder.dropout import DropoutKey, random_bits
from maskwright.encoder.encoder import Encoder

Backend = str | Callable[..., Any]
"""What `torch.compile` takes for one."""

_NUMBERS = 1 << 16
"""How many different numbers `random_bits` gives."""


def compile_blocks(encoder: Encoder, backend: Backend = "inductor") -> None:
    """Let an encoder's blocks compute by compiled functions wherever gradients are asked for.

    Nothing is compiled before the first batch; lengths and numbers of tokens may then differ from batch to batch.

    Args:
        encoder: Its blocks are changed in place; `restore_blocks` undoes it.
        backend: For `torch.compile`.
    """
    inner = torch.compile(_feed_forward, dynamic=True, backend=backend)
    closing = torch.compile(_close_attention, dynamic=True, backend=backend)
    # Into the instances, past nn.Module: a wrapped module would have other names in its state.
    for attention in encoder.attention_blocks:
        attention.__dict__["forward"] = partial(_attention_forward, cast(AttentionBlock, attention), closing)
    for ffn in encoder.ffn_blocks:
        ffn.__dict__["forward"] = partial(_feed_forward_forward, cast(FeedForwardBlock, ffn), inner)


def restore_blocks(encoder: Encoder) -> None:
    """Let an encoder's blocks compute as their classes say."""
    for block in (*encoder.attention_blocks, *encoder.ffn_blocks):
        block.__dict__.pop("forward", None)


def _attention_forward(
    block: AttentionBlock,
    closing: Callable[..., Tensor],
    hidden: Tensor,
    plan: AttentionPlan,
    key: DropoutKey | None,
    call: int,
    read: Tensor | None = None,
) -> Tensor:
    # As `AttentionBlock.forward`.
    if not torch.is_grad_enabled():
        return AttentionBlock.forward(block, hidden, plan, key, call, read)
    mixed, hidden = block.mix(hidden, plan, key, call, read)
    return closing(block, mixed, hidden, _bits(block, hidden, key, call + 1))


def _feed_forward_forward(
    block: FeedForwardBlock, inner: Callable[..., Tensor], hidden: Tensor, key: DropoutKey | None, call: int
) -> Tensor:
    # As `FeedForwardBlock.forward`.
    if not torch.is_grad_enabled():
        return FeedForwardBlock.forward(block, hidden, key, call)
    return inner(block, hidden, _bits(block, hidden, key, call))


def _threshold(block: AttentionBlock | FeedForwardBlock) -> int:
    return round(block._hidden_dropout * _NUMBERS)


def _bits(block: AttentionBlock | FeedForwardBlock, values: Tensor, key: DropoutKey | None, call: int) -> Tensor | None:
    # Outside of what is compiled: a call's number would be a symbol there, and its products leave 64 bits.
    return None if key is None or not _threshold(block) else random_bits(values.shape, key, call)


def _close_attention(block: AttentionBlock, mixed: Tensor, hidden: Tensor, bits: Tensor | None) -> Tensor:
    return _added_and_normed(block, block.output(mixed), hidden, bits)


def _feed_forward(block: FeedForwardBlock, hidden: Tensor, bits: Tensor | None) -> Tensor:
    inner = activation(block._activation, block.dense_in(hidden))
    return _added_and_normed(block, block.dense_out(inner), hidden, bits)


def _added_and_normed(
    block: AttentionBlock | FeedForwardBlock, values: Tensor, residual: Tensor, bits: Tensor | None
) -> Tensor:
    if bits is not None:
        # What `dropout_add` does, in operations that a compiler lays together.
        threshold = _threshold(block)
        scale = _NUMBERS / (_NUMBERS - threshold)
        values = torch.where(bits >= threshold - _NUMBERS // 2, values.to(residual.dtype) * scale, 0.0)
    normed: Tensor = block.norm(residual + values)
    return normed
