"""Masked language modeling: predict the original token at each selected position."""

from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np

from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import Examples, HeadShape, Targets
from maskwright.pretext.objectives.base import VocabularyObjective

if TYPE_CHECKING:
    from torch import Tensor, nn


class MaskedLanguageModeling(VocabularyObjective):
    """Predict the original token at every selected position, kept ones included (Devlin et al. 2019, 3.1).

    The loss is summed in fp32.
    """

    kind: Literal["mlm"] = "mlm"
    on_generator: ClassVar[bool] = True

    def targets(self, examples: Examples) -> Targets:
        positions = examples.selection.positions
        return Targets(positions=positions, labels=examples.instances.ids[positions].astype(np.int64))

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import MaskedLanguageModelingHead

        return MaskedLanguageModelingHead(shape)

    def num_parameters(self, shape: HeadShape) -> int:
        """Dense H x E and LayerNorm of E, each perhaps with a bias, output bias V."""
        vectors = 1 + shape.norm_bias + shape.dense_bias
        return (shape.hidden_size + vectors) * shape.embedding_size + shape.vocab_size

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum the cross entropy at the targets.

        Where the targets carry uniform random numbers ("sampling", shape (M,)), a token is sampled at each target too.
        """
        from maskwright.kernels import ops

        targets = inputs.targets
        features = head(inputs.encoded.output.hidden.index_select(0, targets.positions))
        scores = ops.summed_cross_entropy(
            features,
            inputs.encoded.word_embeddings,
            cast("Tensor", head.bias),
            targets.labels,
            sampling=targets.extra.get("sampling"),
        )
        return LossTerm(total=scores.total, correct=scores.correct, sampled=scores.sampled)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V."""
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size)

    def logits(self, head: "nn.Module", hidden: "Tensor", word_embeddings: "Tensor") -> "Tensor":
        """Return the logits (M, V) at some positions, for inference, from their hidden states (M, H) and the
        tied word embeddings (V, E)."""
        from torch.nn.functional import linear

        return linear(head(hidden), word_embeddings, cast("Tensor", head.bias))
