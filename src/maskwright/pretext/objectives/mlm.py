"""Masked language modeling: say which token stood at each selected position."""

from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import HeadShape, LossInputs, LossTerm, activation
from maskwright.core.types import Examples, IntArray, Targets
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.cross_entropy import summed_cross_entropy
from maskwright.pretext.objectives.output_bias import InitialBias, begin_bias


class MaskedLanguageModelingHead(nn.Module):
    """Dense H -> E, activation, LayerNorm, tied word embeddings and a bias (run_pretraining.py:240-285).

    Attributes:
        dense: Linear H -> E.
        layer_norm: LayerNorm of width E.
        bias: Shape (V,), added to the logits.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.dense = nn.Linear(shape.hidden_size, shape.embedding_size)
        self.layer_norm = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Turn hidden states (M, H) into what is multiplied with the word embeddings (M, E)."""
        return cast(Tensor, self.layer_norm(activation(self.activation, self.dense(hidden))))


class MaskedLanguageModeling(Objective):
    """Predict the original token at every selected position, kept ones included (Devlin et al. 2019, 3.1).

    The loss is summed over the targets of the batch, in fp32.

    Attributes:
        initial_bias: Where the output bias begins: at "zero" (all papers), or at the logarithm of the tokens'
            "frequencies" in the corpus, which spares a short run the steps in which it learns nothing else.
    """

    kind: Literal["mlm"] = "mlm"
    on_generator: ClassVar[bool] = True
    initial_bias: InitialBias = "zero"

    def targets(self, examples: Examples) -> Targets:
        """Return the selected positions and the ids that stood there (see `Objective.targets`)."""
        positions = examples.selection.positions
        return Targets(positions=positions, labels=examples.instances.ids[positions].astype(np.int64))

    def head(self, shape: HeadShape) -> MaskedLanguageModelingHead:
        """Build the head (see `Objective.head`)."""
        return MaskedLanguageModelingHead(shape)

    def prepare(self, head: nn.Module, token_counts: IntArray | None) -> None:
        """Set the output bias to the frequencies if asked to (see `Objective.prepare`)."""
        begin_bias(cast(Tensor, head.bias), self.initial_bias, token_counts)

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum the cross entropy at the targets only (see `Objective.loss`).

        Where the targets carry uniform numbers ("sampling", shape (M,)), a token is drawn at each target too.
        """
        targets = inputs.targets
        features = head(inputs.view.output.hidden.index_select(0, filled_up(targets.positions)))
        scores = summed_cross_entropy(
            features,
            inputs.view.word_embeddings,
            cast(Tensor, head.bias),
            targets.labels,
            sampling=targets.extra.get("sampling"),
        )
        return LossTerm(total=scores.total, count=len(targets.labels), correct=scores.correct, sampled=scores.sampled)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V (see `Objective.flops`)."""
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size)

    def logits(self, head: nn.Module, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return the scores of all vocabulary entries at some positions, for inference.

        Args:
            head: What `head` built.
            hidden: Hidden states at the positions asked for. Shape (M, H).
            word_embeddings: The tied output matrix. Shape (V, E).

        Returns:
            Shape (M, V); softmax over the last dimension gives probabilities.
        """
        return nn.functional.linear(head(hidden), word_embeddings, cast(Tensor, head.bias))
