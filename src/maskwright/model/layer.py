"""The two sublayers of a layer, post-norm: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, section 3.1)."""

from torch import Tensor, nn

from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig

DROPOUT_CALLS = 3
"""Dropout calls in one layer: attention probabilities, attention output, feed-forward output."""


class AttentionBlock(nn.Module):
    """Self-attention with its projections, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self._config = config

    def forward(
        self,
        hidden: Tensor,
        sequences: ops.Sequences,
        dropout: ops.DropoutKey,
        call: int,
        output_positions: Tensor | None = None,
    ) -> Tensor:
        """Attend within each sequence.

        Args:
            hidden: Shape (T, H).
            sequences: Which tokens attend to each other.
            dropout: Key of the dropout masks.
            call: Number of the first of two dropout calls.
            output_positions: Shape (W,), int64, the tokens to return; None returns all.

        Returns:
            Shape (T, H), or (W, H).
        """
        query, key, value = ops.linear_qkv(hidden, self.query, self.key, self.value)
        context = ops.attention(
            query,
            key,
            value,
            sequences,
            num_heads=self._config.num_heads,
            dropout=dropout.mask(call, self._config.attention_dropout),
        )
        if output_positions is not None:
            context, hidden = context.index_select(0, output_positions), hidden.index_select(0, output_positions)
        mask = dropout.mask(call + 1, self._config.hidden_dropout)
        return ops.dropout_add_norm(self.output(context), hidden, self.norm, mask)


class FeedForwardBlock(nn.Module):
    """Two dense layers with an activation between them, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self._config = config

    def forward(self, hidden: Tensor, dropout: ops.DropoutKey, call: int) -> Tensor:
        """Transform each token. Shape (T, H) to (T, H); `call` is the number of the one dropout call."""
        outer = ops.activated_linear(self._config.hidden_activation, self.dense_in(hidden), self.dense_out)
        mask = dropout.mask(call, self._config.hidden_dropout)
        return ops.dropout_add_norm(outer, hidden, self.norm, mask)
