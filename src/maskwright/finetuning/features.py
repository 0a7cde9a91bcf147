"""Examples as token sequences with targets: what tasks make of examples, and batches of them."""

from dataclasses import dataclass

from numpy.typing import NDArray
from torch import Tensor

from maskwright.core.tensors import FlatBatch
from maskwright.core.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Sequences of many examples, flat, with what is to be predicted.

    A *unit* is what is trained on and scored at once: one sequence; for multiple choice the sequences of all options
    of a question, which are never parted. A long context gives several units (windows) of one example.

    Attributes:
        ids: Shape (T,), special tokens in place.
        segment_ids: Shape (T,); all 0 where the encoder knows no segments.
        cu_seqlens: Shape (B+1,), where sequences begin and end.
        units: Shape (B,), unit of each sequence: ascending from 0 without gaps.
        examples: Shape (U,), example of each unit, ascending.
        positions: Shape (M,), ascending: tokens at which a tag is predicted; None for tasks that score sequences.
        labels: Targets, first axis as `units` has units (U), or as `positions` (M) where there are positions; None
            where examples have no labels. By kind of task: int64 (U,) a class or an option; float32 (U,) a number;
            float32 (U, C) of 0 and 1, multi-label; int64 (M,) tags, -1 where nothing is learnt;
            int64 (U, 2) first and last token of the answer, counted in their sequence.
        offsets: Shape (T, 2), characters [start, end) of the answer's text that each token covers, -1 for tokens that
            no answer may hold; None for tasks that answer with no part of a text.
        num_cut: Examples of which tokens were cut off or left out because of the length.
    """

    ids: IntArray
    segment_ids: IntArray
    cu_seqlens: IntArray
    units: IntArray
    examples: IntArray
    positions: IntArray | None = None
    labels: NDArray | None = None  # type: ignore[type-arg]
    offsets: NDArray | None = None  # type: ignore[type-arg]
    num_cut: int = 0

    @property
    def num_units(self) -> int:
        """U."""
        return len(self.examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureBatch:
    """Some units of `Features`, laid out for the encoder.

    Attributes:
        batch: The flat tokens. `batch.first_tokens` are in the order of `lengths`.
        lengths: Shape (B,), int64, tokens of each sequence: in the order of the units, options in their order.
            Sequence b covers the tokens `batch.first_tokens[b]` to `batch.first_tokens[b] + lengths[b]`.
        unit_numbers: Shape (U',), numpy: which units of the features these are, ascending.
        units: Shape (B,), int64: unit of each sequence, numbered from 0 within this batch.
        positions: Shape (M',), int64, offsets of the tokens where a tag is predicted; None as in `Features`.
        labels: As in `Features`, on the device; None where there are none.
    """

    batch: FlatBatch
    lengths: Tensor
    unit_numbers: IntArray
    units: Tensor
    positions: Tensor | None
    labels: Tensor | None
