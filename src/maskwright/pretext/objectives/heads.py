"""The prediction heads of the objectives, as PyTorch modules.

M targets, B sequences, H hidden size, E embedding size, V vocabulary size.
"""

from typing import cast

import torch
from torch import Tensor, nn

from maskwright.core.types import HeadShape
from maskwright.kernels import ops


class MaskedLanguageModelingHead(nn.Module):
    """Dense H -> E, activation, LayerNorm, tied word embeddings and a bias (V,) (run_pretraining.py:240-285)."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.dense = nn.Linear(shape.hidden_size, shape.embedding_size, bias=shape.dense_bias)
        self.layer_norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps, bias=shape.norm_bias)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (M, H) to the features (M, E) that are multiplied by the word embeddings."""
        return cast(Tensor, self.layer_norm(ops.activation(self.activation, self.dense(hidden))))


class CopyingHead(MaskedLanguageModelingHead):
    """A masked-token head and dense H -> 1, the log-odds of copying the input (Clark et al. 2020, section 3.5)."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        self.copying = nn.Linear(shape.hidden_size, 1)


class ReplacedTokenDetectionHead(nn.Module):
    """Dense H -> H, activation, dense H -> 1 (electra: run_pretraining.py, get_discriminator_output).

    DEVIATION: the original leaves `dense_prediction` to TensorFlow's default initializer (Glorot, uniform). Here the
    recipe's initializer fills every matrix, as in Hugging Face's class. It is one row of H numbers.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)
        self.dense_prediction = nn.Linear(shape.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (M, H) to logits (M,), the log-odds that a token was replaced."""
        scores = self.dense_prediction(ops.activation(self.activation, self.dense(hidden)))
        return cast(Tensor, scores.squeeze(-1))


class SpanBoundaryHead(nn.Module):
    """Two layers over [left; right; position], each dense, activation and LayerNorm; tied word embeddings and a bias.

    Row k - 1 of `place_embeddings` is the k-th token of a span.
    """

    def __init__(self, shape: HeadShape, max_tokens: int, position_width: int) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.place_embeddings = nn.Embedding(max_tokens, position_width)
        self.dense_in = nn.Linear(2 * shape.hidden_size + position_width, shape.hidden_size)
        self.norm_in = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dense_out = nn.Linear(shape.hidden_size, shape.embedding_size)
        self.norm_out = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, left: Tensor, right: Tensor, positions: Tensor) -> Tensor:
        """Map boundary states (M, H), twice, and positions in the span (M,), from 1, to features (M, E)."""
        joined = torch.cat([left, right, self.place_embeddings(positions - 1)], dim=-1)
        inner = self.norm_in(ops.activation(self.activation, self.dense_in(joined)))
        return cast(Tensor, self.norm_out(ops.activation(self.activation, self.dense_out(inner))))


class PairHead(nn.Module):
    """One linear layer H -> 2 over the pooled vector (bert: run_pretraining.py:288-305); classes are the labels."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.classifier = nn.Linear(shape.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map pooled vectors (B, H) to class logits (B, 2)."""
        scores: Tensor = self.classifier(pooled)
        return scores
