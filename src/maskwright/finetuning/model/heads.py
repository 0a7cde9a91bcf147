"""Task heads: the computations of the families' transformers classes, on packed sequences.

The differences between classes are data (`checkpoints.families`, `TaskHead`).

| family | sequence | choice |
|---|---|---|
| BERT, ALBERT, ERNIE | pooled, dropout, linear | the same |
| RoBERTa | first token, dropout, dense, tanh, dropout, linear | pooled, dropout, linear |
| ELECTRA | first token, dropout, dense, gelu, dropout, linear | first token, dense, gelu, dropout, linear |
| DistilBERT | first token, dense, relu, dropout, linear | the same |
| ModernBERT | first token, dense, gelu, LayerNorm, dropout, linear | the same |

"token" heads are dropout and linear; "span" heads are linear, in DistilBERT with dropout before. ModernBERT's are as
over sequences.

T tokens, B sequences, M targets, W output positions, H hidden, C outputs.
"""

import itertools
from typing import final

import numpy as np
from torch import Tensor, nn

from maskwright.checkpoints.families.base import TaskHead
from maskwright.core.tensors import EncoderOutput
from maskwright.core.types import IntArray
from maskwright.finetuning.features import FeatureBatch, Features
from maskwright.kernels import ops
from maskwright.model.config import EncoderConfig
from maskwright.model.sublayers import num_sites


@final
class Head(nn.Module):
    """A task head: a linear layer H -> C, for some classes after a dense layer H -> H.

    `row` is the family's `TaskHead`: which layers its class has; `rate` the dropout before the last layer, and before
    the dense layer if the class has it.
    """

    def __init__(self, row: TaskHead, config: EncoderConfig, num_outputs: int, rate: float) -> None:
        super().__init__()
        width = config.hidden_size
        self.dense = nn.Linear(width, width, bias=config.dense_bias) if row.dense else None
        eps, bias = config.layer_norm_eps, config.norm_bias
        self.norm = nn.LayerNorm(width, eps=eps, bias=bias) if row.norm else None
        self.output = nn.Linear(width, num_outputs)
        self.rate = rate
        self._row = row
        self._first_site = num_sites(config)  # The dropout sites of the encoder come first.

    def forward(self, output: EncoderOutput, batch: FeatureBatch) -> Tensor:
        """Return scores in fp32: "sequence" (B, C), "token" (M, C), "span" (T, 2), "choice" (B, 1).

        `output` is the encoder's for `batch.batch`. Applies dropout in training mode, if the batch has a key.
        """
        if self._row.source == "pooled":
            assert output.pooled is not None, "the encoder has no pooler"
            return self.score(output.pooled, batch.batch.dropout_key)
        positions = self.output_positions(batch)
        hidden = output.hidden if positions is None else output.hidden[positions]
        return self.score(hidden, batch.batch.dropout_key)

    def score(self, hidden: Tensor, dropout_key: int | Tensor | None = None) -> Tensor:
        """Return scores for hidden states (W, H) at the `output_positions`, or pooled vectors (see `forward`)."""
        key = ops.DropoutKey(dropout_key if self.training else None, hidden.device)
        if self.dense is not None:
            if self._row.drops_source:
                hidden = ops.dropout(hidden, key.mask(self._first_site, self.rate))
            hidden = ops.activation(self._row.activation, self.dense(hidden))
        if self.norm is not None:
            hidden = self.norm(hidden)
        scores: Tensor = self.output(ops.dropout(hidden, key.mask(self._first_site + 1, self.rate)))
        return scores.float()

    def output_positions(self, batch: FeatureBatch) -> Tensor | None:
        """Return the tokens (W,) whose last hidden states the head needs, for `Encoder.forward`; None for all."""
        if self._row.source in ("pooled", "first"):
            return batch.batch.first_tokens
        return batch.positions

    def positions_by_sequence(self, features: Features) -> list[IntArray]:
        """Return for each sequence the same tokens, counted from its first one, for `TextEncoder`."""
        bounds = features.cu_seqlens
        if self._row.source in ("pooled", "first"):
            return [np.zeros(1, dtype=np.int64)] * (len(bounds) - 1)
        positions = np.arange(len(features.ids)) if features.positions is None else features.positions
        ranges = zip(itertools.pairwise(np.searchsorted(positions, bounds)), bounds[:-1], strict=True)
        return [positions[first:last] - start for (first, last), start in ranges]
