"""Replace MLM and All-Tokens MLM: predict the original tokens of an input with a generator's samples."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from maskwright.core.types import HeadShape
from maskwright.pretext.objectives.base import EveryTokenObjective, VocabularyObjective

if TYPE_CHECKING:
    from torch import Tensor, nn

    from maskwright.core.tensors import LossInputs, LossTerm


class ReplaceMLM(EveryTokenObjective, VocabularyObjective):
    """Predict original tokens where a generator's samples replace the selected ones (Clark et al. 2020, section 3.4).

    The generator's own objective is `mlm`. The experiment of the paper was not released.

    Attributes:
        loss_at: "selected" is Replace MLM. "everywhere" is All-Tokens MLM, with a copy mechanism: the probability of a
            token is D [token = input token] + (1 - D) softmax, D a sigmoid of the hidden state.
    """

    kind: Literal["replace_mlm"] = "replace_mlm"
    needs: ClassVar[frozenset[str]] = frozenset({"generator"})
    loss_at: Literal["everywhere", "selected"] = "selected"

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import CopyingHead, MaskedLanguageModelingHead

        return MaskedLanguageModelingHead(shape) if self.loss_at == "selected" else CopyingHead(shape)

    def num_parameters(self, shape: HeadShape) -> int:
        """Dense H x E with bias, LayerNorm of E, output bias V; everywhere: dense H x 1 with bias."""
        copying = 0 if self.loss_at == "selected" else shape.hidden_size + 1
        return (shape.hidden_size + 3) * shape.embedding_size + shape.vocab_size + copying

    def loss(self, head: "nn.Module", inputs: "LossInputs") -> "LossTerm":
        """Sum the cross entropy over the targets, which carry the tokens that the encoder sees ("inputs").

        Tallies: the number of "replaced" tokens; everywhere also the number of these that are predicted ("restored").
        """
        from maskwright.core.tensors import LossTerm
        from maskwright.kernels import ops

        targets = inputs.targets
        hidden = inputs.view.output.hidden.index_select(0, targets.positions)
        vocabulary = inputs.view.word_embeddings, cast("Tensor", head.bias)
        is_replaced = targets.extra["inputs"] != targets.labels
        tallies = {"replaced": is_replaced.sum()}
        if self.loss_at == "selected":
            scores = ops.summed_cross_entropy(head(hidden), *vocabulary, targets.labels)
            return LossTerm(total=scores.total, correct=scores.correct, tallies=tallies)
        features, copying = cast("tuple[Tensor, Tensor]", head.with_copying(hidden))  # type: ignore[operator]
        total, is_right = ops.summed_copying_cross_entropy(
            ops.LogitParts(features, *vocabulary), copying, targets.extra["inputs"], targets.labels
        )
        tallies["restored"] = (is_right & is_replaced).sum()
        return LossTerm(total=total, correct=is_right.sum(), tallies=tallies)

    def flops(self, shape: HeadShape) -> float:
        """Dense H x E, output E x V; everywhere: dense H x 1."""
        copying = 0 if self.loss_at == "selected" else shape.hidden_size
        return 2.0 * (shape.hidden_size * shape.embedding_size + shape.embedding_size * shape.vocab_size + copying)

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the share of replaced tokens and, everywhere, how many of them are restored."""
        shares = {"replaced": tallies["replaced"] / count}
        if tallies["replaced"] and "restored" in tallies:
            shares["restored"] = tallies["restored"] / tallies["replaced"]
        return shares
