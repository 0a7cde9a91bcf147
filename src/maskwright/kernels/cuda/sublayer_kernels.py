"""Kernels of what stands between a layer's matrix products on a GPU (Triton): activation, dropout, residual, norm.

All of them move memory: each reads and writes its tensors once, computes in fp32 in between, and adds up the slopes of
biases and of LayerNorm's weights where slopes pass by anyway, one row of partial sums a program.
"""

import triton
import triton.language as tl

from maskwright.kernels.cuda.word_kernels import _MIX


@triton.jit
def _keeps(words, columns, row, num_rows, width, least, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Which elements of some rows are kept. A word of random bits is of four neighbours, so it is made once for them.
    quarter = tl.arange(0, BLOCK // 4)
    inside = (row < num_rows)[:, None] & (quarter * 4 < width)[None, :]
    word = row.to(tl.int64)[:, None] * (width // 4) + quarter[None, :]
    of_row = tl.load(words + (word >> 9), mask=inside, other=1)
    of_column = tl.load(columns + (word & 511))
    mixed = of_row * of_column
    mixed = (mixed ^ (mixed >> 32)) * _MIX
    lanes = tl.arange(0, 4) * 16
    bits = (mixed[:, :, None] >> lanes[None, None, :]).to(tl.int16)
    return tl.reshape(bits, (ROWS, BLOCK)).to(tl.int32) >= least


@triton.jit
def norm_forward(
    values,
    bias,
    residual,
    weight,
    shift,
    sums,
    result,
    about,
    words,
    columns,
    num_rows,
    width,
    least,
    scale,
    epsilon,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """LayerNorm(residual + dropout(values + bias)) of some rows; `sums` gets what is normed, `about` mean and 1/sd."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    inside = (row < num_rows)[:, None] & is_column[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    added = tl.load(values + place, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(bias + column, mask=is_column, other=0.0)[None, :]
    if DROPS:
        keeps = _keeps(words, columns, row, num_rows, width, least, ROWS, BLOCK)
        added = tl.where(keeps, added * scale, 0.0)
    added += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    # What the backward pass reads is rounded: it and this pass shall see the same numbers.
    rounded = added.to(sums.dtype.element_ty)
    tl.store(sums + place, rounded, mask=inside)
    added = tl.where(inside, rounded.to(tl.float32), 0.0)
    mean = tl.sum(added, 1) / width
    apart = tl.where(inside, added - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(apart * apart, 1) / width + epsilon)
    tl.store(about + row * 2, mean, mask=row < num_rows)
    tl.store(about + row * 2 + 1, inverse, mask=row < num_rows)
    normed = apart * inverse[:, None] * tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    normed += tl.load(shift + column, mask=is_column, other=0.0)[None, :]
    tl.store(result + place, normed.to(result.dtype.element_ty), mask=inside)


@triton.jit
def norm_backward(
    slope,
    sums,
    about,
    weight,
    to_residual,
    to_values,
    partial,
    words,
    columns,
    num_rows,
    width,
    least,
    scale,
    rows_each,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slopes of the residual and of the values of `rows_each` rows; a row of `partial` gets weight's, shift's, bias's.

    Without dropout both are the same, and `to_values` is not written.
    """
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    factor = tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    # Added up over a tile's rows at the end alone: that takes all threads of a program.
    to_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    to_shift = tl.zeros((ROWS, BLOCK), tl.float32)
    to_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, rows_each, ROWS):
        row = program * rows_each + begin + tl.arange(0, ROWS)
        # The last rows of one program are not the first of the next.
        is_row = (row < num_rows) & (begin + tl.arange(0, ROWS) < rows_each)
        inside = is_row[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        given = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(about + row * 2, mask=is_row, other=0.0)
        inverse = tl.load(about + row * 2 + 1, mask=is_row, other=0.0)
        normed = tl.load(sums + place, mask=inside, other=0.0).to(tl.float32)
        normed = tl.where(inside, (normed - mean[:, None]) * inverse[:, None], 0.0)
        to_weight += given * normed
        to_shift += given
        given *= factor
        middle = tl.sum(given, 1) / width
        along = tl.sum(given * normed, 1) / width
        given = (given - middle[:, None] - normed * along[:, None]) * inverse[:, None]
        tl.store(to_residual + place, given.to(to_residual.dtype.element_ty), mask=inside)
        if DROPS:
            keeps = _keeps(words, columns, row, num_rows, width, least, ROWS, BLOCK)
            given = tl.where(keeps & inside, given * scale, 0.0)
            tl.store(to_values + place, given.to(to_values.dtype.element_ty), mask=inside)
        to_bias += tl.where(inside, given, 0.0)
    own = partial + program * 3 * width + column
    tl.store(own, tl.sum(to_weight, 0), mask=is_column)
    tl.store(own + width, tl.sum(to_shift, 0), mask=is_column)
    tl.store(own + 2 * width, tl.sum(to_bias, 0), mask=is_column)


@triton.jit
def _erf_parts(values):
    return 0.5 * (1 + tl.erf(values * 0.7071067811865476))


@triton.jit
def _tanh_parts(values):
    # tanh(z) = 1 - 2 / (1 + exp(2 z)), where z = sqrt(2 / pi) (x + .044715 x^3).
    return 1 - 2 / (1 + tl.exp(1.5957691216057308 * (values + 0.044715 * values * values * values)))


@triton.jit
def activation_forward(values, bias, result, count, width, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """GELU (KIND 0), its tanh form (1) or ReLU (2) of values + bias, elementwise over (T, I)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    given = tl.load(values + place, mask=inside, other=0.0).to(tl.float32)
    given += tl.load(bias + place % width, mask=inside, other=0.0)
    if KIND == 0:
        active = given * _erf_parts(given)
    elif KIND == 1:
        active = 0.5 * given * (1 + _tanh_parts(given))
    else:
        active = tl.maximum(given, 0.0)
    tl.store(result + place, active.to(result.dtype.element_ty), mask=inside)


@triton.jit
def activation_backward(
    slope,
    values,
    bias,
    partial,
    num_rows,
    width,
    rows_each,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slopes of an activation's input in place of those of its output; a row of `partial` gets the bias's."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < width
    add = tl.load(bias + column, mask=is_column, other=0.0)[None, :]
    to_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, rows_each, ROWS):
        row = tl.program_id(0) * rows_each + begin + tl.arange(0, ROWS)
        is_row = (row < num_rows) & (begin + tl.arange(0, ROWS) < rows_each)
        inside = is_row[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        given = tl.load(values + place, mask=inside, other=0.0).to(tl.float32) + add
        if KIND == 0:
            derivative = _erf_parts(given) + given * 0.3989422804014327 * tl.exp(-0.5 * given * given)
        elif KIND == 1:
            tanh = _tanh_parts(given)
            steep = 0.7978845608028654 * (1 + 0.134145 * given * given)
            derivative = 0.5 * (1 + tanh) + 0.5 * given * (1 - tanh * tanh) * steep
        else:
            derivative = tl.where(given > 0, 1.0, 0.0)
        passed = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32) * derivative
        passed = tl.where(inside, passed, 0.0)
        tl.store(slope + place, passed.to(slope.dtype.element_ty), mask=inside)
        to_bias += passed
    tl.store(partial + tl.program_id(0) * width + column, tl.sum(to_bias, 0), mask=is_column)
