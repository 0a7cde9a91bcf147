"""Span boundary objective: say which token stood at a place within a span, from the two tokens beside the span."""

from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from maskwright.core.row_counts import filled_up
from maskwright.core.tensors import HeadShape, LossInputs, LossTerm, activation
from maskwright.core.types import Examples, IntArray, Selection, Targets
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.cross_entropy import summed_cross_entropy
from maskwright.pretext.objectives.output_bias import InitialBias, begin_bias

PLACE_WIDTH = 200
"""Width of the place embeddings; fixed, since the original's flag for it never reaches the constructor."""


class SpanBoundaryHead(nn.Module):
    """Two layers over [left; right; place], each dense, activation and LayerNorm, then the tied word embeddings.

    Attributes:
        place_embeddings: Row k - 1 stands for the k-th token of a span. Shape (max_places, 200).
        dense_in: Linear 2 H + 200 -> H.
        norm_in: LayerNorm of width H.
        dense_out: Linear H -> E.
        norm_out: LayerNorm of width E.
        bias: Shape (V,), added to the logits.
    """

    def __init__(self, shape: HeadShape, max_places: int) -> None:
        super().__init__()
        self.activation = shape.hidden_activation
        self.place_embeddings = nn.Embedding(max_places, PLACE_WIDTH)
        self.dense_in = nn.Linear(2 * shape.hidden_size + PLACE_WIDTH, shape.hidden_size)
        self.norm_in = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.dense_out = nn.Linear(shape.hidden_size, shape.embedding_size)
        self.norm_out = nn.LayerNorm(shape.embedding_size, eps=shape.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))

    def forward(self, left: Tensor, right: Tensor, places: Tensor) -> Tensor:
        """Turn boundaries (M, H) twice and places (M,), from 1, into what is multiplied with word embeddings (M, E)."""
        joined = torch.cat([left, right, self.place_embeddings(places - 1)], dim=-1)
        inner = self.norm_in(activation(self.activation, self.dense_in(joined)))
        return cast(Tensor, self.norm_out(activation(self.activation, self.dense_out(inner))))


class SpanBoundaryObjective(Objective):
    """Predict each token of a hidden span from its outer neighbours and its place (Joshi et al. 2020, section 3.2).

    A span is a run of selected units that touch. Where its neighbour on either side is a special token nothing is
    asked, so that boundaries always are text that was not selected; nor is anything asked beyond the first
    `max_places` tokens of a span (SpanBERT: no_nsp_span_bert_dataset.py:160-170).

    The loss is summed over the targets of the batch and divided by their number.
    DEVIATION: the original divides by one more (criterions/spanbert_loss.py:30-66), so that a batch without targets
    does not divide by zero; here such a batch adds nothing, and every target weighs the same in any batch.

    Attributes:
        max_places: Most tokens asked of a span. 20 is the code's default; the command in its README says 15.
        initial_bias: As in `MaskedLanguageModeling`.
    """

    kind: Literal["sbo"] = "sbo"
    needs: ClassVar[frozenset[str]] = frozenset({"contiguous_units"})
    max_places: Annotated[int, Field(ge=1, le=512)] = 20
    initial_bias: InitialBias = "zero"

    def targets(self, examples: Examples) -> Targets:
        """Return the tokens asked for, "left" and "right" as anchors and "place", from 1, as extra value."""
        instances = examples.instances
        starts, ends = _runs(examples.selection.starts, examples.selection.ends, instances.special)
        lengths = np.minimum(ends - starts, self.max_places)
        firsts = np.repeat(starts, lengths)
        places = np.arange(len(firsts)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = firsts + places
        return Targets(
            positions=positions,
            labels=instances.ids[positions].astype(np.int64),
            extra={"place": places + 1},
            anchors={"left": firsts - 1, "right": np.repeat(ends, lengths)},
        )

    def head(self, shape: HeadShape) -> SpanBoundaryHead:
        """Build the head (see `Objective.head`)."""
        return SpanBoundaryHead(shape, self.max_places)

    def prepare(self, head: nn.Module, token_counts: IntArray | None) -> None:
        """Set the output bias to the frequencies if asked to (see `Objective.prepare`)."""
        begin_bias(cast(Tensor, head.bias), self.initial_bias, token_counts)

    def loss(self, head: nn.Module, inputs: LossInputs) -> LossTerm:
        """Sum the cross entropy at the targets only (see `Objective.loss`)."""
        targets, hidden = inputs.targets, inputs.view.output.hidden
        left, right = (hidden[filled_up(targets.anchors[side])] for side in ("left", "right"))
        features = head(left, right, filled_up(targets.extra["place"]))
        scores = summed_cross_entropy(features, inputs.view.word_embeddings, cast(Tensor, head.bias), targets.labels)
        return LossTerm(total=scores.total, count=len(targets.labels), correct=scores.correct)

    def flops(self, shape: HeadShape) -> float:
        """Dense (2 H + 200) x H and H x E, output E x V (see `Objective.flops`)."""
        hidden, width = shape.hidden_size, shape.embedding_size
        return 2.0 * ((2 * hidden + PLACE_WIDTH) * hidden + hidden * width + width * shape.vocab_size)


def _runs(starts: IntArray, ends: IntArray, special: IntArray) -> tuple[IntArray, IntArray]:
    """Join units that touch, and keep the runs that lie within text: ordinary tokens with ordinary neighbours.

    Args:
        starts, ends: Shape (U,), ascending units that do not overlap.
        special: Shape (T,), True at special tokens; each sequence begins and ends with one.
    """
    ordinary = ~special[starts]
    runs = Selection(starts[ordinary], ends[ordinary]).joined()
    inside = ~special[runs.starts - 1] & ~special[runs.ends]
    return runs.starts[inside], runs.ends[inside]
