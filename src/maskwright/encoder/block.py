"""The two halves of a layer, post-norm: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, 3.1)."""

from torch import Tensor, nn

from maskwright.core.tensors import activation
from maskwright.encoder.attention import AttentionPlan, attend
from maskwright.encoder.config import EncoderConfig
from maskwright.encoder.dropout import DropoutKey, dropout_add

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
        self._num_heads = config.num_heads
        self._attention_dropout = config.attention_dropout
        self._hidden_dropout = config.hidden_dropout

    def forward(
        self, hidden: Tensor, plan: AttentionPlan, key: DropoutKey | None, call: int, read: Tensor | None = None
    ) -> Tensor:
        """Attend and add.

        Args:
            hidden: Shape (T, H).
            plan: Who may look at whom.
            key: Key of the dropout masks; None drops nothing.
            call: Number of the first dropout call made here; two are made.
            read: Shape (W,), int64: the tokens to return; None returns all.

        Returns:
            Shape (T, H), or (W, H).
        """
        mixed = attend(
            self.query(hidden),
            self.key(hidden),
            self.value(hidden),
            plan,
            num_heads=self._num_heads,
            dropout_rate=self._attention_dropout,
            dropout_key=key,
            dropout_call=call,
        )
        if read is not None:
            mixed, hidden = mixed.index_select(0, read), hidden.index_select(0, read)
        normed: Tensor = self.norm(dropout_add(self.output(mixed), hidden, self._hidden_dropout, key, call + 1))
        return normed


class FeedForwardBlock(nn.Module):
    """Two dense layers with an activation between them, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self._activation = config.hidden_activation
        self._hidden_dropout = config.hidden_dropout

    def forward(self, hidden: Tensor, key: DropoutKey | None, call: int) -> Tensor:
        """Transform each token and add.

        Args:
            hidden: Shape (T, H).
            key: Key of the dropout masks; None drops nothing.
            call: Number of the one dropout call made here.

        Returns:
            Shape (T, H).
        """
        inner = activation(self._activation, self.dense_in(hidden))
        normed: Tensor = self.norm(dropout_add(self.dense_out(inner), hidden, self._hidden_dropout, key, call))
        return normed
