"""The two sublayers of a layer, post-norm: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, section 3.1).

T tokens, W output positions, H hidden size. There is no module for a whole layer, since layers may share either
sublayer (`EncoderConfig.sharing`).
"""

from torch import Tensor, nn

from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.dropout import LayerDropout


class SelfAttention(nn.Module):
    """Multi-head self-attention with its projections, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden_size = config.hidden_size
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self._num_heads = config.num_heads

    def forward(
        self, hidden: Tensor, sequences: ops.Sequences, dropout: LayerDropout, output_positions: Tensor | None = None
    ) -> Tensor:
        """Attend within each sequence. Shape (T, H) to (T, H), or to (W, H) at the output positions (W,), int64."""
        query, key, value = ops.linear_qkv(hidden, self.query, self.key, self.value)
        context = ops.attention(
            query, key, value, sequences, num_heads=self._num_heads, dropout=dropout.attention_probabilities
        )
        if output_positions is not None:
            context, hidden = context.index_select(0, output_positions), hidden.index_select(0, output_positions)
        return ops.dropout_add_norm(self.output(context), hidden, self.norm, dropout.attention_output)


class FeedForward(nn.Module):
    """Two dense layers with an activation between them, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self._activation = config.hidden_activation

    def forward(self, hidden: Tensor, dropout: LayerDropout) -> Tensor:
        """Transform each token by itself. Shape (T, H) to (T, H)."""
        output = ops.feed_forward(hidden, self.dense_in, self._activation, self.dense_out)
        return ops.dropout_add_norm(output, hidden, self.norm, dropout.feed_forward_output)
