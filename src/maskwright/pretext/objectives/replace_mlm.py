"""Replace MLM and All-Tokens MLM: predict original tokens where the encoder sees a generator's samples."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import HeadShape
from maskwright.pretext.objectives.base import EveryTokenObjective, VocabularyObjective
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling

if TYPE_CHECKING:
    from torch import Tensor, nn


_MLM = MaskedLanguageModeling()


class ReplaceMLM(EveryTokenObjective, VocabularyObjective):
    """Predict original tokens where a generator's samples replace the selected ones (Clark et al. 2020, section 3.5).

    The generator is trained by `mlm`. The paper's code for it was not released.

    Attributes:
        weight: 1, that of `mlm`; the paper names none.
        loss_at: "selected" is Replace MLM. "everywhere" is All-Tokens MLM, with a copy mechanism: the probability of a
            token is D [token = input token] + (1 - D) softmax, D a sigmoid of the hidden state.
    """

    kind: Literal["replace_mlm"] = "replace_mlm"
    needs: ClassVar[frozenset[str]] = frozenset({"generator"})
    loss_at: Literal["everywhere", "selected"] = "selected"

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import CopyingHead

        return _MLM.head(shape) if self.loss_at == "selected" else CopyingHead(shape)

    def num_parameters(self, shape: HeadShape) -> int:
        """Those of `mlm`; everywhere: also dense H x 1 with bias."""
        return _MLM.num_parameters(shape) + (0 if self.loss_at == "selected" else shape.hidden_size + 1)

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        """Sum the cross entropy over the targets.

        Tallies: the number of "replaced" tokens; everywhere also of those that are predicted correctly ("restored").
        """
        from maskwright.kernels import ops

        positions, labels = inputs.targets.positions, inputs.targets.labels
        is_replaced = inputs.encoded.ids[positions] != labels
        tallies = {"replaced": is_replaced.sum()}
        if self.loss_at == "selected":
            term = _MLM.loss(head, inputs)
            return LossTerm(total=term.total, correct=term.correct, tallies=tallies)
        hidden = inputs.encoded.output.hidden.index_select(0, positions)
        copying = cast("nn.Linear", head.copying)(hidden).squeeze(-1)
        parts = ops.LogitParts(head(hidden), inputs.encoded.word_embeddings, cast("Tensor", head.bias))
        total, is_right = ops.summed_copying_cross_entropy(parts, copying, inputs.encoded.ids[positions], labels)
        tallies["restored"] = (is_right & is_replaced).sum()
        return LossTerm(total=total, correct=is_right.sum(), tallies=tallies)

    def flops(self, shape: HeadShape) -> float:
        """Those of `mlm`; everywhere: also dense H x 1."""
        return _MLM.flops(shape) + (0.0 if self.loss_at == "selected" else 2.0 * shape.hidden_size)

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return the share of replaced tokens and, everywhere, how many of these are restored."""
        shares = {"replaced": tallies["replaced"] / count}
        if tallies["replaced"] and "restored" in tallies:
            shares["restored"] = tallies["restored"] / tallies["replaced"]
        return shares
