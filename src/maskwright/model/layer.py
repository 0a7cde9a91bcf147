"""The two halves of a layer, post-norm: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, 3.1)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.core.tensors import activation
from maskwright.kernels.activated_linear import activated_linear, keeps_less
from maskwright.kernels.attention import AttentionPlan, attend
from maskwright.kernels.dropout import DropoutKey, dropout_add
from maskwright.model.config import EncoderConfig

DROPOUT_CALLS = 3
"""Dropout calls in one layer: attention probabilities, attention output, feed-forward output."""

_WIDEST_JOINED = 512
"""Widest layer whose three projections are one product in training. Measured on one core, forward and backward, time of
one product over that of three, in fp32 (bf16): width 128 .93 (.96), 256 .93 (1.00), 512 .99 (.98), 768 1.01 (.99)."""


class AttentionBlock(nn.Module):
    """Self-attention with its projections, residual and LayerNorm.

    Args:
        config: The shape.
    """

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
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        key: DropoutKey | None,
        call: int,
        output_positions: Tensor | None = None,
    ) -> Tensor:
        """Attend and add.

        Args:
            hidden: Shape (T, H).
            plan: Who may look at whom.
            key: Key of the dropout masks; None drops nothing.
            call: Number of the first dropout call made here; two are made.
            output_positions: Shape (W,), int64: the tokens to return; None returns all.

        Returns:
            Shape (T, H), or (W, H).
        """
        mixed, hidden = self.mix(hidden, plan, key, call, output_positions)
        normed: Tensor = self.norm(dropout_add(self.output(mixed), hidden, self._hidden_dropout, key, call + 1))
        return normed

    def mix(
        self,
        hidden: Tensor,
        plan: AttentionPlan,
        key: DropoutKey | None,
        call: int,
        output_positions: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend (see `forward`); return what was mixed and what it is added to, each (T, H), or (W, H)."""
        queries, keys, values = self._project(hidden, plan)
        mixed = attend(
            queries,
            keys,
            values,
            plan,
            num_heads=self._num_heads,
            dropout_rate=self._attention_dropout,
            dropout_key=key,
            dropout_call=call,
        )
        if output_positions is None:
            return mixed, hidden
        return mixed.index_select(0, output_positions), hidden.index_select(0, output_positions)

    def _project(self, hidden: Tensor, plan: AttentionPlan) -> tuple[Tensor, ...]:
        # Side by side, the weights make one product of three, whose gradient adds up inside. Laying them so takes a
        # moment, which a short text does not give back. Nested tensors cannot be made of parts of a wider one, which
        # the results then are; on a GPU the joined product is not measured.
        layers = (self.query, self.key, self.value)
        width = hidden.shape[1]
        joins = width <= _WIDEST_JOINED and torch.is_grad_enabled() and plan.backend != "jagged"
        if not joins or hidden.device.type != "cpu":
            return tuple(layer(hidden) for layer in layers)
        weight = torch.cat([layer.weight for layer in layers])
        bias = torch.cat([layer.bias for layer in layers])
        return torch.split(F.linear(hidden, weight, bias), width, dim=1)


class FeedForwardBlock(nn.Module):
    """Two dense layers with an activation between them, residual and LayerNorm.

    Args:
        config: The shape.
    """

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
        inner = self.dense_in(hidden)
        if keeps_less(self._activation, inner, self.dense_out):
            outer = activated_linear(self._activation, inner, self.dense_out)
        else:
            outer = self.dense_out(activation(self._activation, inner))
        normed: Tensor = self.norm(dropout_add(outer, hidden, self._hidden_dropout, key, call))
        return normed
