"""An encoder for use alone on a processor: the same numbers as `encoder.Encoder`, with less to do and to read.

It serves where `native_encoder` does not: in bf16, without a compiler, with widths that are no multiple of 16.

Against the module that is trained: weights are laid out once for what multiplies (`dense`); queries, keys
and values are one product; activation and residual are inside the products; attention reads its operands where they
lie; nothing is kept for a backward pass; the last layer computes only what is read, from its queries on where these are
few tokens, else behind its attention. A block that layers share is laid out once, so that it can stay in the cache from
layer to layer.

T tokens, R row length, N heads, D head size, H = N D, W tokens that are read.
"""

from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.products import fp32_products
from maskwright.core.tensors import PackedBatch
from maskwright.core.types import ProductPrecision
from maskwright.kernels.attention import AttentionPlan, Backend, attend, pad_to_rows, plan_attention
from maskwright.kernels.cpu.dense import joined, pack
from maskwright.model.config import EncoderConfig
from maskwright.model.encoder import Encoder
from maskwright.model.layer import AttentionBlock, FeedForwardBlock
from maskwright.model.packed.embedding import Embedding
from maskwright.model.packed.norm import Norm

_SHORTEST_ROWS = 32
"""Slots of a row from which batched products of bf16 are faster than the fused kernel: 1.3x at 50, 1.7x at 384."""
_NARROW, _FUSED_BLOCK = 512, 64
_ROWS_IN_FP32 = range(96, 417)
"""Of an encoder at most so wide, rows of so many slots are multiplied faster in fp32 by batched products than by the
fused kernel where they are not whole blocks of it: 1.1 to 1.4x at four heads. Wider, the copies cost more than that."""


@final
class PackedEncoder:
    """An encoder that is only used.

    Args:
        encoder: Weights in fp32 on the CPU. Its embeddings are used as they are, its blocks are copied.
        precision: Of the products in the layers. LayerNorms and softmax sum in fp32 always.
    """

    def __init__(self, encoder: Encoder, precision: ProductPrecision) -> None:
        config = encoder.config
        self._embedding = Embedding(encoder)
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._narrow = config.hidden_size <= _NARROW
        order = config.layer_plan("attention")
        # A block of the last layer alone may be laid out in parts: queries apart.
        apart = {order[-1]} if order.count(order[-1]) == 1 else set[int]()
        attention = [
            (_LastAttention if number in apart else _Attention)(cast(AttentionBlock, block), precision, config)
            for number, block in enumerate(encoder.attention_blocks)
        ]
        ffn = [_FeedForward(cast(FeedForwardBlock, block), precision, config) for block in encoder.ffn_blocks]
        self._layers = [
            (attention[first], ffn[second]) for first, second in zip(order, config.layer_plan("ffn"), strict=True)
        ]

    def __call__(self, batch: PackedBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch in inference mode.

        Args:
            batch: A batch cut into rows.
            read: Shape (W,), int64: the slots to return; None returns all.

        Returns:
            Hidden states in fp32, shape (T, H) or (W, H); those at filler slots are finite and mean nothing.
        """
        # Dense layers name their library themselves. Attention multiplies small matrices, in which oneDNN takes two to
        # six times as long as PyTorch's own choice.
        with torch.inference_mode(), fp32_products("none"):
            plan = plan_attention(batch, self._backend(batch), self._dtype)
            hidden = self._embedding(batch).to(self._dtype)
            last = len(self._layers) - 1
            for number, (attention, ffn) in enumerate(self._layers):
                if read is not None and number == last:
                    # All tokens are attended to; what follows is each token's own.
                    hidden = ffn(attention.add(attention.mix_read(hidden, plan, read), hidden[read]))
                else:
                    hidden = ffn(attention.add(attention.mix(hidden, plan), hidden))
            return hidden.float()

    def _backend(self, batch: PackedBatch) -> Backend:
        row_length, num_slots = batch.max_seqlen, batch.num_tokens
        if self._dtype == torch.bfloat16:
            return "rows" if row_length >= _SHORTEST_ROWS else "sdpa"
        by_products = self._narrow and row_length in _ROWS_IN_FP32 and row_length % _FUSED_BLOCK
        return "rows" if by_products and num_slots > row_length else "sdpa"


class _AttentionOutput:
    """What both forms of attention have: output projection, residual and LayerNorm."""

    def __init__(self, block: AttentionBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        self._output = pack(block.output.weight, block.output.bias, precision)
        self._norm = Norm(block.norm)
        self._num_heads = config.num_heads

    def add(self, mixed: Tensor, hidden: Tensor) -> Tensor:
        """Project what was mixed, add what came in, normalise. Shapes (W, H)."""
        return self._norm(self._output(mixed, hidden))


@final
class _Attention(_AttentionOutput):
    """Self-attention."""

    def __init__(self, block: AttentionBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        super().__init__(block, precision, config)
        self._project = pack(*joined(block.query, block.key, block.value), precision)

    def mix(self, hidden: Tensor, plan: AttentionPlan) -> Tensor:
        """Mix each token's values over its sequence. Shape (T, H) to (T, H)."""
        queries, keys, values = torch.split(self._project(hidden), hidden.shape[1], dim=1)
        return attend(queries, keys, values, plan, num_heads=self._num_heads)

    def mix_read(self, hidden: Tensor, plan: AttentionPlan, read: Tensor) -> Tensor:
        """Mix for the tokens that are read. Shape (W, H)."""
        return self.mix(hidden, plan)[read]


@final
class _LastAttention(_AttentionOutput):
    """Self-attention of the last layer, which needs queries of the tokens that are read only."""

    def __init__(self, block: AttentionBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        super().__init__(block, precision, config)
        self._query = pack(block.query.weight, block.query.bias, precision)
        self._key_value = pack(*joined(block.key, block.value), precision)

    def mix(self, hidden: Tensor, plan: AttentionPlan) -> Tensor:
        """Mix each token's values over its sequence. Shape (T, H) to (T, H)."""
        keys, values = torch.split(self._key_value(hidden), hidden.shape[1], dim=1)
        return attend(self._query(hidden), keys, values, plan, num_heads=self._num_heads)

    def mix_read(self, hidden: Tensor, plan: AttentionPlan, read: Tensor) -> Tensor:
        """Mix for the tokens that are read. Shape (W, H)."""
        length, width = plan.row_length, hidden.shape[1]
        # Each gets a copy of its row's keys and values: together no more than there are.
        if len(read) > plan.num_rows:
            return self.mix(hidden, plan)[read]
        slots = read if plan.row_slots is None else plan.row_slots[read]
        rows = slots // length
        laid = pad_to_rows(self._key_value(hidden), plan)
        pairs = laid.view(-1, length, 2, self._num_heads, width // self._num_heads)[rows]
        keys, values = pairs.transpose(1, 3).unbind(2)
        queries = self._query(hidden[read]).view(len(read), self._num_heads, 1, -1)
        mask = None if plan.mask is None else plan.mask[rows, :, slots % length, None]
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask).reshape(len(read), width)


@final
class _FeedForward:
    """Two dense layers with an activation between them, residual and LayerNorm."""

    def __init__(self, block: FeedForwardBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        self._dense_in = pack(block.dense_in.weight, block.dense_in.bias, precision, config.hidden_activation)
        self._dense_out = pack(block.dense_out.weight, block.dense_out.bias, precision)
        self._norm = Norm(block.norm)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self._dense_out(self._dense_in(hidden), hidden))
