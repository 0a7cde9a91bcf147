"""An encoder for use alone on a processor: the same numbers as `encoder.Encoder`, with less to do and to read.

Against the module that is trained: weights are laid out once for the library that multiplies (`dense`); queries, keys
and values are one product; activation and residual are inside the products; attention reads its operands where they
lie; nothing is kept for a backward pass; behind its attention the last layer computes only what is read. A block that
layers share is laid out once, so that it can stay in the cache from layer to layer.

T tokens, R row length, N heads, D head size, H = N D, W tokens that are read.
"""

from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional as F

from maskwright.core.tensors import FlatBatch
from maskwright.core.types import ProductPrecision
from maskwright.encoder.attention import AttentionPlan, plan_attention
from maskwright.encoder.block import AttentionBlock, FeedForwardBlock
from maskwright.encoder.config import EncoderConfig
from maskwright.encoder.encoder import Encoder
from maskwright.encoder.packed.dense import joined, pack
from maskwright.encoder.packed.embedding import Embedding
from maskwright.encoder.packed.norm import Norm


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
        attention = [_Attention(cast(AttentionBlock, block), precision, config) for block in encoder.attention_blocks]
        ffn = [_FeedForward(cast(FeedForwardBlock, block), precision, config) for block in encoder.ffn_blocks]
        self._layers = [
            (attention[first], ffn[second])
            for first, second in zip(config.layer_plan("attention"), config.layer_plan("ffn"), strict=True)
        ]

    def __call__(self, batch: FlatBatch, read: Tensor | None = None) -> Tensor:
        """Encode a batch in inference mode.

        Args:
            batch: A batch cut into rows.
            read: Shape (W,), int64: the slots to return; None returns all.

        Returns:
            Hidden states in fp32, shape (T, H) or (W, H); those at filler slots are finite and mean nothing.
        """
        with torch.inference_mode():
            plan = plan_attention(batch, "sdpa", self._dtype)
            hidden = self._embedding(batch).to(self._dtype)
            last = len(self._layers) - 1
            for number, (attention, ffn) in enumerate(self._layers):
                mixed = attention.mix(hidden, plan)
                if read is not None and number == last:
                    # All tokens were attended to; what follows is each token's own.
                    mixed, hidden = mixed[read], hidden[read]
                hidden = ffn(attention.add(mixed, hidden))
            return hidden.float()


@final
class _Attention:
    """Self-attention with its projections, residual and LayerNorm."""

    def __init__(self, block: AttentionBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        self._project = pack(*joined(block.query, block.key, block.value), precision)
        self._output = pack(block.output.weight, block.output.bias, precision)
        self._norm = Norm(block.norm)
        self._num_heads = config.num_heads

    def mix(self, hidden: Tensor, plan: AttentionPlan) -> Tensor:
        """Mix each token's values over its sequence. Shape (T, H) to (T, H)."""
        rows = self._project(hidden).view(-1, plan.row_length, 3, self._num_heads, hidden.shape[1] // self._num_heads)
        queries, keys, values = rows.transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=plan.mask)
        return mixed.transpose(1, 2).reshape(hidden.shape)

    def add(self, mixed: Tensor, hidden: Tensor) -> Tensor:
        """Project what was mixed, add what came in, normalise. Shapes (W, H)."""
        return self._norm(self._output(mixed, hidden))


@final
class _FeedForward:
    """Two dense layers with an activation between them, residual and LayerNorm."""

    def __init__(self, block: FeedForwardBlock, precision: ProductPrecision, config: EncoderConfig) -> None:
        self._dense_in = pack(block.dense_in.weight, block.dense_in.bias, precision, config.hidden_activation)
        self._dense_out = pack(block.dense_out.weight, block.dense_out.bias, precision)
        self._norm = Norm(block.norm)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._norm(self._dense_out(self._dense_in(hidden), hidden))
