"""Kernels of the embeddings on a GPU (Triton): three rows looked up, added, normed, dropped in one pass, and back."""

import triton
import triton.language as tl

from maskwright.kernels.cuda.sublayer_kernels import _keeps


@triton.jit
def _summed(words, positions, segments, word, position, segment, inside, column, width, HAS_SEGMENTS: tl.constexpr):
    place = column[None, :]
    total = tl.load(words + word[:, None] * width + place, mask=inside, other=0.0)
    total += tl.load(positions + position[:, None] * width + place, mask=inside, other=0.0)
    if HAS_SEGMENTS:
        total += tl.load(segments + segment[:, None] * width + place, mask=inside, other=0.0)
    return total


@triton.jit
def embed_forward(
    words,
    positions,
    segments,
    word_ids,
    position_ids,
    segment_ids,
    weight,
    shift,
    result,
    about,
    random_rows,
    random_columns,
    num_rows,
    width,
    skipped,
    least,
    scale,
    epsilon,
    HAS_SEGMENTS: tl.constexpr,
    BY_SEGMENT: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dropout(LayerNorm(word + position + segment)) of some tokens; `about` gets mean and 1 / deviation."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < num_rows
    column = tl.arange(0, BLOCK)
    is_column = column < width
    inside = is_row[:, None] & is_column[None, :]
    word = tl.load(word_ids + row, mask=is_row, other=0)
    position = tl.load(position_ids + row, mask=is_row, other=0) + skipped
    segment = word * 0
    if BY_SEGMENT:
        segment = tl.load(segment_ids + row, mask=is_row, other=0)
    total = _summed(words, positions, segments, word, position, segment, inside, column, width, HAS_SEGMENTS)
    mean = tl.sum(total, 1) / width
    apart = tl.where(inside, total - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(apart * apart, 1) / width + epsilon)
    tl.store(about + row * 2, mean, mask=is_row)
    tl.store(about + row * 2 + 1, inverse, mask=is_row)
    normed = apart * inverse[:, None] * tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    normed += tl.load(shift + column, mask=is_column, other=0.0)[None, :]
    if DROPS:
        keeps = _keeps(random_rows, random_columns, row, num_rows, width, least, ROWS, BLOCK)
        normed = tl.where(keeps, normed * scale, 0.0)
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(result + place, normed.to(result.dtype.element_ty), mask=inside)


@triton.jit
def embed_backward(
    slope,
    words,
    positions,
    segments,
    word_ids,
    position_ids,
    segment_ids,
    about,
    weight,
    to_words,
    to_positions,
    partial,
    random_rows,
    random_columns,
    num_rows,
    width,
    skipped,
    least,
    scale,
    rows_each,
    HAS_SEGMENTS: tl.constexpr,
    BY_SEGMENT: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the slopes of `rows_each` tokens to those of their words and positions, which begin as zeros.

    A row of `partial` gets those of LayerNorm's weight and shift and of the first two segments. The rows are looked up
    again: keeping their sums would move as much memory.
    """
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    factor = tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    to_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    to_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    to_first = tl.zeros((ROWS, BLOCK), tl.float32)
    to_second = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, rows_each, ROWS):
        row = program * rows_each + begin + tl.arange(0, ROWS)
        is_row = (row < num_rows) & (begin + tl.arange(0, ROWS) < rows_each)
        inside = is_row[:, None] & is_column[None, :]
        word = tl.load(word_ids + row, mask=is_row, other=0)
        position = tl.load(position_ids + row, mask=is_row, other=0) + skipped
        segment = word * 0
        if BY_SEGMENT:
            segment = tl.load(segment_ids + row, mask=is_row, other=0)
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        given = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
        total = _summed(words, positions, segments, word, position, segment, inside, column, width, HAS_SEGMENTS)
        mean = tl.load(about + row * 2, mask=is_row, other=0.0)
        inverse = tl.load(about + row * 2 + 1, mask=is_row, other=0.0)
        normed = tl.where(inside, (total - mean[:, None]) * inverse[:, None], 0.0)
        if DROPS:
            keeps = _keeps(random_rows, random_columns, row, num_rows, width, least, ROWS, BLOCK)
            given = tl.where(keeps & inside, given * scale, 0.0)
        to_weight += given * normed
        to_shift += given
        given *= factor
        middle = tl.sum(given, 1) / width
        along = tl.sum(given * normed, 1) / width
        given = (given - middle[:, None] - normed * along[:, None]) * inverse[:, None]
        given = tl.where(inside, given, 0.0)
        tl.atomic_add(to_words + word[:, None] * width + column[None, :], given, mask=inside, sem="relaxed")
        tl.atomic_add(to_positions + position[:, None] * width + column[None, :], given, mask=inside, sem="relaxed")
        if HAS_SEGMENTS:
            is_second = (segment == 1)[:, None]
            to_first += tl.where(is_second, 0.0, given)
            to_second += tl.where(is_second, given, 0.0)
    own = partial + program * 4 * width + column
    tl.store(own, tl.sum(to_weight, 0), mask=is_column)
    tl.store(own + width, tl.sum(to_shift, 0), mask=is_column)
    tl.store(own + 2 * width, tl.sum(to_first, 0), mask=is_column)
    tl.store(own + 3 * width, tl.sum(to_second, 0), mask=is_column)
