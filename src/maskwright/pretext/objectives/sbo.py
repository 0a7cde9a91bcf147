"""Span boundary objective: predict each token of a masked span from the two tokens beside the span."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.tensors import LossInputs, LossTerm
from maskwright.core.types import Examples, HeadShape, Selection, Targets
from maskwright.pretext.objectives.base import VocabularyObjective

if TYPE_CHECKING:
    from torch import Tensor, nn


POSITION_WIDTH = 200
"""Width of the position embeddings; constant, since the original's flag for it never reaches the constructor."""


class SpanBoundaryObjective(VocabularyObjective):
    """Predict each token of a masked span from its boundary tokens and its position (Joshi et al. 2020, section 3.2).

    A span is a run of adjacent selected units. A span beside a special token is skipped, so that boundaries are always
    text that was not selected; tokens beyond the first `max_tokens` of a span are not predicted (SpanBERT:
    no_nsp_span_bert_dataset.py:160-170).

    The loss is summed over the targets of the batch and divided by their number.
    DEVIATION: the original divides by one more (criterions/spanbert_loss.py:30-66), so that a batch without targets
    does not divide by zero; here such a batch adds nothing, and every target weighs the same in any batch.

    Attributes:
        max_tokens: Maximum number of tokens predicted per span. 20 is the code's default; its README's command uses 15.
    """

    kind: Literal["sbo"] = "sbo"
    needs: ClassVar[frozenset[str]] = frozenset({"contiguous_units"})
    max_tokens: Annotated[int, Field(ge=1, le=512)] = 20

    def targets(self, examples: Examples) -> Targets:
        """Return the targets, with "left" and "right" as anchors and "position" in the span, from 1, as extra value."""
        instances, selection = examples.instances, examples.selection
        ordinary = ~instances.special[selection.starts]
        runs = Selection(selection.starts[ordinary], selection.ends[ordinary]).merge_adjacent()
        # Each sequence begins and ends with a special token, so a run has neighbors.
        inside = ~instances.special[runs.starts - 1] & ~instances.special[runs.ends]
        starts, ends = runs.starts[inside], runs.ends[inside]
        lengths = np.minimum(ends - starts, self.max_tokens)
        positions, firsts = concatenated_ranges(starts, lengths), np.repeat(starts, lengths)
        return Targets(
            positions=positions,
            labels=instances.ids[positions].astype(np.int64),
            extra={"position": positions - firsts + 1},
            anchors={"left": firsts - 1, "right": np.repeat(ends, lengths)},
        )

    def head(self, shape: HeadShape) -> "nn.Module":
        from maskwright.pretext.objectives.heads import SpanBoundaryHead

        return SpanBoundaryHead(shape, self.max_tokens, POSITION_WIDTH)

    def num_parameters(self, shape: HeadShape) -> int:
        """Position embeddings, two dense layers with bias and LayerNorm, output bias V."""
        hidden, width = shape.hidden_size, shape.embedding_size
        inner = (2 * hidden + POSITION_WIDTH + 3) * hidden
        return self.max_tokens * POSITION_WIDTH + inner + (hidden + 3) * width + shape.vocab_size

    def loss(self, head: "nn.Module", inputs: LossInputs) -> LossTerm:
        from maskwright.kernels import ops

        targets, hidden = inputs.targets, inputs.encoded.output.hidden
        left, right = (hidden[targets.anchors[side]] for side in ("left", "right"))
        features = head(left, right, targets.extra["position"])
        scores = ops.summed_cross_entropy(
            features, inputs.encoded.word_embeddings, cast("Tensor", head.bias), targets.labels
        )
        return LossTerm(total=scores.total, correct=scores.correct)

    def flops(self, shape: HeadShape) -> float:
        """Dense (2 H + 200) x H and H x E, output E x V."""
        hidden, width = shape.hidden_size, shape.embedding_size
        return 2.0 * ((2 * hidden + POSITION_WIDTH) * hidden + hidden * width + width * shape.vocab_size)
