"""The two sublayers of a layer, each with its residual and LayerNorm.

Post-norm: LayerNorm(x + Dropout(Sublayer(x))) (Vaswani et al. 2017, section 3.1). Pre-norm: x +
Dropout(Sublayer(LayerNorm(x))) (Xiong et al. 2020), where the first layer may lack the norm.

T tokens, W output positions, H hidden size. There is no module for a whole layer, since layers may share either
sublayer (`EncoderConfig.sharing`).
"""

from typing import NamedTuple

from torch import Tensor, nn

from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.rotary import Rotation


class LayerDropout(NamedTuple):
    """The dropout masks of one layer (Devlin et al. 2019, appendix A.2); None where nothing is dropped."""

    attention_probabilities: ops.DropoutMask | None
    attention_output: ops.DropoutMask | None
    feed_forward_output: ops.DropoutMask | None

    @classmethod
    def of(cls, key: ops.DropoutKey, config: EncoderConfig, layer: int) -> "LayerDropout":
        """Return the masks of a layer; their order is part of their keys, and site 0 is that of the embeddings."""
        first = 1 + len(cls._fields) * layer
        rates = config.attention_dropout, config.hidden_dropout, config.hidden_dropout
        return cls(*(key.mask(first + site, rate) for site, rate in enumerate(rates)))


def num_sites(config: EncoderConfig) -> int:
    """Return the number of dropout sites of an encoder; those of a head are numbered from there."""
    return 1 + len(LayerDropout._fields) * config.num_layers


class _Sublayer(nn.Module):
    """A LayerNorm before the sublayer or after its residual sum; None for no norm (pre-norm only)."""

    norm: nn.LayerNorm | None

    def __init__(self, config: EncoderConfig, *, has_norm: bool = True) -> None:
        super().__init__()
        self.norm = layer_norm(config, config.hidden_size) if has_norm else None
        self.is_pre_norm = config.norm_placement == "pre"

    def before(self, hidden: Tensor) -> Tensor:
        """Return the sublayer's input. Shape (T, H)."""
        return self.norm(hidden) if self.is_pre_norm and self.norm is not None else hidden

    def after(self, output: Tensor, residual: Tensor, dropout: ops.DropoutMask | None) -> Tensor:
        """Add the sublayer's output to the residual. Shapes (T, H)."""
        if self.is_pre_norm or self.norm is None:
            return ops.dropout_add(output, residual, dropout)
        return ops.dropout_add_norm(output, residual, self.norm, dropout)


class SelfAttention(_Sublayer):
    """Multi-head self-attention with its projections."""

    def __init__(self, config: EncoderConfig, *, has_norm: bool = True) -> None:
        super().__init__(config, has_norm=has_norm)
        hidden_size, bias = config.hidden_size, config.dense_bias
        self.query = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.key = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.value = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)
        self._num_heads = config.num_heads

    def project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values. Shapes (T, H)."""
        query, key, value = ops.linear_qkv(self.before(hidden), self.query, self.key, self.value)
        return query, key, value

    def forward(
        self,
        hidden: Tensor,
        qkv: tuple[Tensor, Tensor, Tensor],
        sequences: ops.Sequences,
        dropout: LayerDropout,
        output_positions: Tensor | None = None,
        *,
        rotation: Rotation | None = None,
        window: int | None = None,
    ) -> Tensor:
        """Attend within each sequence. Shape (T, H) to (T, H), or to (W, H) at the output positions (W,), int64.

        `qkv` are those of `hidden` (`project`). `rotation` rotates queries and keys; `window` is the number of
        tokens to either side, None for all.
        """
        query, key, value = qkv
        if rotation is not None:
            query, key = (rotation(each, self._num_heads) for each in (query, key))
        context = ops.attention(
            query,
            key,
            value,
            sequences,
            num_heads=self._num_heads,
            dropout=dropout.attention_probabilities,
            window=window,
        )
        if output_positions is not None:
            context, hidden = context.index_select(0, output_positions), hidden.index_select(0, output_positions)
        return self.after(self.output(context), hidden, dropout.attention_output)


class FeedForward(_Sublayer):
    """Two dense layers with an activation between them; gated, the first one's second half multiplies it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        inner, self._gated = config.intermediate_size, config.feed_forward == "gated"
        self.dense_in = nn.Linear(config.hidden_size, 2 * inner if self._gated else inner, bias=config.dense_bias)
        self.dense_out = nn.Linear(inner, config.hidden_size, bias=config.dense_bias)
        self._activation = config.hidden_activation

    def forward(self, hidden: Tensor, dropout: LayerDropout) -> Tensor:
        """Transform each token by itself. Shape (T, H) to (T, H)."""
        compute = ops.gated_feed_forward if self._gated else ops.feed_forward
        output = compute(self.before(hidden), self.dense_in, self._activation, self.dense_out)
        return self.after(output, hidden, dropout.feed_forward_output)


def layer_norm(config: EncoderConfig, width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.norm_bias)
