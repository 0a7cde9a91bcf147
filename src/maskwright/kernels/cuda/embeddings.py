"""Embeddings in training on a GPU: looked up, added, normed and dropped by one kernel each way.

T tokens, V words, E width.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.core.tensors import FlatBatch
from maskwright.kernels.cuda.launches import Closing, next_power_of_two, rows_each_of
from maskwright.kernels.dropout import DropoutKey

_MOST_SEGMENTS = 2
_PROGRAMS = 528
"""Of the backward pass, four for each of 132 multiprocessors: each writes a row of sums."""


def takes(segments: nn.Embedding | None) -> bool:
    """Say whether the kernels take a table of segments: of as many as the published systems have."""
    return segments is None or segments.num_embeddings <= _MOST_SEGMENTS


def embedded(
    batch: FlatBatch,
    words: nn.Embedding,
    positions: nn.Embedding,
    segments: nn.Embedding | None,
    norm: nn.LayerNorm,
    *,
    position_offset: int,
    rate: float,
    key: DropoutKey | None,
    call: int,
) -> Tensor:
    """Return `dropout(norm(word + position + segment))` (see `encoder.embeddings.sum_embeddings`).

    Args:
        batch: Ids, positions and segments, each of shape (T,).
        words: V rows of width E.
        positions: As in `sum_embeddings`.
        segments: At most two rows, or None.
        norm: Of width E.
        position_offset: Rows of the position table that are skipped.
        rate: Share dropped.
        key: The micro-batch's key; None drops nothing.
        call: Number of the dropout call.

    Returns:
        Shape (T, E), bfloat16.
    """
    ids = _Ids(
        batch.ids,
        batch.position_ids,
        batch.segment_ids,
        position_offset,
        has_segments=segments is not None,
        by_segment=segments is not None and segments.num_embeddings > 1,
    )
    shape = torch.Size((len(batch.ids), words.embedding_dim))
    return cast(
        Tensor,
        _Embedded.apply(  # type: ignore[no-untyped-call]
            words.weight,
            positions.weight,
            None if segments is None else segments.weight,
            norm.weight,
            norm.bias,
            ids,
            Closing.of(shape, norm, rate, key, call),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Ids:
    """What is looked up."""

    words: Tensor
    positions: Tensor
    segments: Tensor
    position_offset: int
    has_segments: bool
    by_segment: bool


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
        positions: Tensor,
        segments: Tensor | None,
        weight: Tensor,
        shift: Tensor,
        ids: _Ids,
        ends: Closing,
    ) -> Tensor:
        from maskwright.kernels.cuda import embedding_kernels as kernels

        num_rows, width = len(ids.words), words.shape[1]
        result = words.new_empty(num_rows, width, dtype=torch.bfloat16)
        about = words.new_empty(num_rows, 2)
        block = next_power_of_two(width)
        rows = max(1, 2048 // block)
        random_rows, random_columns, least, scale = ends.drawn(about)
        kernels.embed_forward[(-(-num_rows // rows),)](
            words,
            positions,
            words if segments is None else segments,
            ids.words,
            ids.positions,
            ids.segments,
            weight,
            shift,
            result,
            about,
            random_rows,
            random_columns,
            num_rows,
            width,
            ids.position_offset,
            least,
            scale,
            ends.epsilon,
            HAS_SEGMENTS=ids.has_segments,
            BY_SEGMENT=ids.by_segment,
            DROPS=ends.words is not None,
            ROWS=rows,
            BLOCK=block,
            num_warps=4,
        )
        ctx.save_for_backward(words, positions, segments, weight, about)
        ctx.told = ids, ends
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        from maskwright.kernels.cuda import embedding_kernels as kernels

        words, positions, segments, weight, about = ctx.saved_tensors
        ids, ends = ctx.told
        num_rows, width = len(ids.words), words.shape[1]
        block = next_power_of_two(width)
        rows = max(1, 1024 // block)
        each = rows_each_of(num_rows, rows, _PROGRAMS)
        programs = -(-num_rows // each)
        to_words, to_positions = torch.zeros_like(words), torch.zeros_like(positions)
        partial = words.new_empty(programs, 4, width)
        random_rows, random_columns, least, scale = ends.drawn(about)
        kernels.embed_backward[(programs,)](
            slopes[0].contiguous(),
            words,
            positions,
            words if segments is None else segments,
            ids.words,
            ids.positions,
            ids.segments,
            about,
            weight,
            to_words,
            to_positions,
            partial,
            random_rows,
            random_columns,
            num_rows,
            width,
            ids.position_offset,
            least,
            scale,
            each,
            HAS_SEGMENTS=ids.has_segments,
            BY_SEGMENT=ids.by_segment,
            DROPS=ends.words is not None,
            ROWS=rows,
            BLOCK=block,
            num_warps=4,
        )
        to_weight, to_shift, *to_segments = partial.sum(0)
        of_segments = None if segments is None else torch.stack(to_segments)[: len(segments)]
        return to_words, to_positions, of_segments, to_weight, to_shift, None, None
