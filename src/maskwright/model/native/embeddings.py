"""Embeddings in training on a processor, by C code of our own (`embeddings.c`).

One function of autograd from the tables on: looked up, added, normed and dropped in one pass. Back, the masks are made
again, from the same table of words as everywhere (`dropout.RandomWords`), and each row of a table's slopes is written
once: the sum of its tokens' slopes, or zeros.

T tokens, V words, E width.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maskwright.core.native.library import AVX512, Code
from maskwright.core.own_code import is_allowed
from maskwright.core.tensors import FlatBatch
from maskwright.model.dropout import DropoutKey, RandomWords
from maskwright.model.native.passes import Dropout, dropout_of

_LANES = 16
"""fp32 numbers in a register: widths are multiples."""
_MOST_SEGMENTS = 8
"""Each chunk of tokens has a row of sums for every segment; the published systems have two."""


class _Embed(ctypes.Structure):
    """`Embed` of `embeddings.c`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("words", "positions", "segments")),
        *((name, ctypes.c_void_p) for name in ("word_ids", "position_ids", "segment_ids")),
        *((name, ctypes.c_void_p) for name in ("weight", "shift", "sums", "result", "about", "slope", "to_sums")),
        *((name, ctypes.c_void_p) for name in ("to_words", "to_positions", "to_others", "room", "first", "next")),
        ("dropout", Dropout),
        *((name, ctypes.c_int64) for name in ("tokens", "width", "num_words", "num_positions", "num_segments")),
        ("position_offset", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
    ]


def _declare(found: ctypes.CDLL) -> None:
    found.embed.argtypes = found.embed_back.argtypes = (ctypes.c_void_p, ctypes.c_int)
    found.embed.restype = found.embed_back.restype = None
    found.first_outside.argtypes, found.first_outside.restype = (ctypes.c_void_p,), ctypes.c_int64
    found.chunks_of.argtypes, found.chunks_of.restype = (ctypes.c_int64,), ctypes.c_int64


CODE = Code(Path(__file__).with_name("embeddings.c"), AVX512, _declare, shares_threads=True)


def takes(
    batch: FlatBatch, words: nn.Embedding, positions: nn.Embedding, segments: nn.Embedding | None, norm: nn.LayerNorm
) -> bool:
    """Say whether embeddings are computed by this code: in training on a processor that has it, tables of fp32.

    Args:
        batch: What is looked up.
        words: As in `embedded`.
        positions: As in `embedded`.
        segments: As in `embedded`.
        norm: As in `embedded`.
    """
    tables = [words, positions] if segments is None else [words, positions, segments]
    width = words.weight.shape[1]
    ids = (batch.ids, batch.position_ids, batch.segment_ids)
    return (
        torch.is_grad_enabled()
        and len(batch.ids) > 0
        and all(_lies(each, torch.int64, batch.ids.shape) for each in ids)
        and all(_is_plain(table) and _lies(table.weight, torch.float32, (len(table.weight), width)) for table in tables)
        and all(_lies(each, torch.float32, (width,)) for each in (norm.weight, norm.bias))
        and all(each.is_contiguous() for each in (norm.weight, norm.bias, *(table.weight for table in tables)))
        and (segments is None or len(segments.weight) <= _MOST_SEGMENTS)
        and width % _LANES == 0
        and is_allowed()
        and CODE.library() is not None
    )


def _lies(values: Tensor | None, dtype: torch.dtype, shape: Sequence[int]) -> bool:
    # In a processor's memory, as asked for.
    return values is not None and values.device.type == "cpu" and values.dtype == dtype and values.shape == shape


def _is_plain(table: nn.Embedding) -> bool:
    return table.padding_idx is None and table.max_norm is None and not table.scale_grad_by_freq and not table.sparse


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
        segments: As in `sum_embeddings`.
        norm: Of width E.
        position_offset: Rows of the position table that are skipped.
        rate: Share dropped.
        key: The micro-batch's key; None drops nothing.
        call: Number of the dropout call.

    Returns:
        Shape (T, E), fp32.

    Raises:
        IndexError: If a table does not have the row that a token asks for.
    """
    shape = torch.Size((len(batch.ids), words.weight.shape[1]))
    about = _About(
        words=batch.ids.contiguous(),
        positions=batch.position_ids.contiguous(),
        segments=batch.segment_ids.contiguous() if segments is not None and segments.num_embeddings > 1 else None,
        num_words=len(words.weight),
        num_positions=len(positions.weight),
        num_segments=0 if segments is None else len(segments.weight),
        position_offset=position_offset,
        epsilon=norm.eps,
        rate=rate,
        dropped=RandomWords.of(shape, key, call) if key is not None and rate else None,
    )
    table = None if segments is None else segments.weight
    return cast(
        Tensor,
        _Embedded.apply(  # type: ignore[no-untyped-call]
            words.weight, positions.weight, table, norm.weight, norm.bias, about
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """What is looked up in how large tables, and how that ends.

    Attributes:
        words: Ids, shape (T,).
        positions: Shape (T,).
        segments: Shape (T,); None where all tokens have row 0, or there is no table.
        num_words: Rows of a table.
        num_positions: Rows of a table, with those that are skipped.
        num_segments: Rows of a table; 0 without one.
        position_offset: Rows that are skipped.
        epsilon: LayerNorm's.
        rate: Share dropped.
        dropped: The words of dropout; None drops nothing.
    """

    words: Tensor
    positions: Tensor
    segments: Tensor | None
    num_words: int
    num_positions: int
    num_segments: int
    position_offset: int
    epsilon: float
    rate: float
    dropped: RandomWords | None

    def call(self, weight: Tensor, sums: Tensor, norms: Tensor) -> _Embed:
        # It points into tensors, which their owners keep until the call is over.
        return _Embed(
            word_ids=self.words.data_ptr(),
            position_ids=self.positions.data_ptr(),
            segment_ids=None if self.segments is None else self.segments.data_ptr(),
            weight=weight.data_ptr(),
            sums=sums.data_ptr(),
            about=norms.data_ptr(),
            tokens=len(self.words),
            width=len(weight),
            num_words=self.num_words,
            num_positions=self.num_positions,
            num_segments=self.num_segments,
            position_offset=self.position_offset,
            epsilon=self.epsilon,
            dropout=dropout_of(self.dropped, self.rate),
        )

    def outside(self, token: int) -> str:
        """Say what a token asks for that is not there."""
        looked_up = [
            ("id", self.words, self.num_words),
            ("position", self.positions, self.num_positions - self.position_offset),
        ]
        if self.segments is not None:
            looked_up.append(("segment", self.segments, self.num_segments))
        said = ", ".join(f"{name} {int(ids[token])} of {size}" for name, ids, size in looked_up)
        return f"embeddings: token {token} of the stream asks for a row that is not there ({said}); see how it was made"


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
        positions: Tensor,
        segments: Tensor | None,
        weight: Tensor,
        shift: Tensor,
        about: _About,
    ) -> Tensor:
        tokens, width = len(about.words), len(weight)
        result, sums, norms = _room(tokens, width), _room(tokens, width), _room(tokens, 2)
        call = about.call(weight, sums, norms)
        call.words, call.positions = words.data_ptr(), positions.data_ptr()
        call.segments = None if segments is None else segments.data_ptr()
        call.shift, call.result = shift.data_ptr(), result.data_ptr()
        outside = CODE.needed().first_outside(ctypes.byref(call))
        if outside < tokens:
            raise IndexError(about.outside(outside))
        CODE.needed().embed(ctypes.byref(call), torch.get_num_threads())
        ctx.save_for_backward(weight, sums, norms, about.words, about.positions, about.segments)
        ctx.about = about
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        # The ids are saved for autograd to see that nobody wrote to them since they were looked at.
        weight, sums, norms, *_ = ctx.saved_tensors
        about: _About = ctx.about
        slope, (tokens, width) = slopes[0].contiguous(), sums.shape
        # In the order of the arguments of `forward`: frozen tables are spared theirs.
        of_words, of_positions, of_segments = ctx.needs_input_grad[:3]
        to_words = _room(about.num_words, width) if of_words else None
        to_positions = _room(about.num_positions, width) if of_positions else None
        # The code writes them past the caches, whole lines of 64 bytes; PyTorch lays every tensor out so.
        assert all(each is None or each.data_ptr() % 64 == 0 for each in (to_words, to_positions))
        to_sums, to_others = _room(tokens, width), _room(2 + about.num_segments, width)
        space = _room(CODE.needed().chunks_of(tokens) * len(to_others), width)
        first = torch.empty(max(about.num_words, about.num_positions), dtype=torch.int32)
        following = torch.empty(tokens, dtype=torch.int32)
        call = about.call(weight, sums, norms)
        call.slope, call.to_sums, call.to_others = slope.data_ptr(), to_sums.data_ptr(), to_others.data_ptr()
        call.to_words = None if to_words is None else to_words.data_ptr()
        call.to_positions = None if to_positions is None else to_positions.data_ptr()
        call.room, call.first, call.next = space.data_ptr(), first.data_ptr(), following.data_ptr()
        CODE.needed().embed_back(ctypes.byref(call), torch.get_num_threads())
        return to_words, to_positions, to_others[2:] if of_segments else None, to_others[0], to_others[1], None


def _room(rows: int, width: int) -> Tensor:
    return torch.empty(rows, width, dtype=torch.float32)
