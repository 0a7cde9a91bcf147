"""Triton kernels of dropout, residual and LayerNorm: one pass over the tensors each way, computed in fp32."""

import triton
import triton.language as tl

from maskwright.kernels.cuda.attention_kernels import _MIX


@triton.jit
def _keeps(rows, columns, row, num_rows, width, least, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Which elements of some rows are kept. A word of random bits serves four neighbors, so it is computed once.
    quarter = tl.arange(0, BLOCK // 4)
    inside = (row < num_rows)[:, None] & (quarter * 4 < width)[None, :]
    word = row.to(tl.int64)[:, None] * (width // 4) + quarter[None, :]
    mixed = tl.load(rows + (word >> 9), mask=inside, other=1) * tl.load(columns + (word & 511))
    mixed = (mixed ^ (mixed >> 32)) * _MIX
    lanes = tl.arange(0, 4) * 16
    bits = (mixed[:, :, None] >> lanes[None, None, :]).to(tl.int16)
    return tl.reshape(bits, (ROWS, BLOCK)).to(tl.int32) >= least


@triton.jit
def forward(
    values, residual, weight, bias, sums, result, statistics, rows, columns, num_rows, width, least, scale, epsilon,
    DROPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """LayerNorm(residual + dropout(values)) of some rows; `sums` gets its input, `statistics` mean, 1 / deviation."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    inside = (row < num_rows)[:, None] & is_column[None, :]
    offsets = row.to(tl.int64)[:, None] * width + column[None, :]
    added = tl.load(values + offsets, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        added = tl.where(_keeps(rows, columns, row, num_rows, width, least, ROWS, BLOCK), added * scale, 0.0)
    added += tl.load(residual + offsets, mask=inside, other=0.0).to(tl.float32)
    # Rounded as the backward pass reads it: both passes must see the same numbers.
    rounded = added.to(sums.dtype.element_ty)
    tl.store(sums + offsets, rounded, mask=inside)
    added = tl.where(inside, rounded.to(tl.float32), 0.0)
    mean = tl.sum(added, 1) / width
    centered = tl.where(inside, added - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centered * centered, 1) / width + epsilon)
    tl.store(statistics + row * 2, mean, mask=row < num_rows)
    tl.store(statistics + row * 2 + 1, inverse, mask=row < num_rows)
    normed = centered * inverse[:, None] * tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    normed += tl.load(bias + column, mask=is_column, other=0.0)[None, :]
    tl.store(result + offsets, normed.to(result.dtype.element_ty), mask=inside)


@triton.jit
def backward(
    grad, sums, statistics, weight, residual_grad, values_grad, partial, rows, columns, num_rows, width, least, scale,
    rows_each, DROPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the residual and the values of `rows_each` rows; a row of `partial` gets weight's and bias's.

    Without dropout both are the same, and `values_grad` is not written.
    """
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_column = column < width
    factor = tl.load(weight + column, mask=is_column, other=0.0)[None, :]
    # Summed over a tile's rows only at the end: that uses all threads of a program.
    weight_grad = tl.zeros((ROWS, BLOCK), tl.float32)
    bias_grad = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, rows_each, ROWS):
        row = program * rows_each + begin + tl.arange(0, ROWS)
        # The last rows of one program are not the first of the next.
        is_row = (row < num_rows) & (begin + tl.arange(0, ROWS) < rows_each)
        inside = is_row[:, None] & is_column[None, :]
        offsets = row.to(tl.int64)[:, None] * width + column[None, :]
        inner_grad = tl.load(grad + offsets, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(statistics + row * 2, mask=is_row, other=0.0)
        inverse = tl.load(statistics + row * 2 + 1, mask=is_row, other=0.0)
        normed = tl.load(sums + offsets, mask=inside, other=0.0).to(tl.float32)
        normed = tl.where(inside, (normed - mean[:, None]) * inverse[:, None], 0.0)
        weight_grad += inner_grad * normed
        bias_grad += inner_grad
        inner_grad *= factor
        middle = tl.sum(inner_grad, 1) / width
        along = tl.sum(inner_grad * normed, 1) / width
        inner_grad = (inner_grad - middle[:, None] - normed * along[:, None]) * inverse[:, None]
        tl.store(residual_grad + offsets, inner_grad.to(residual_grad.dtype.element_ty), mask=inside)
        if DROPS:
            kept = _keeps(rows, columns, row, num_rows, width, least, ROWS, BLOCK)
            inner_grad = tl.where(kept & inside, inner_grad * scale, 0.0)
            tl.store(values_grad + offsets, inner_grad.to(values_grad.dtype.element_ty), mask=inside)
    sums_of_program = partial + program * 2 * width + column
    tl.store(sums_of_program, tl.sum(weight_grad, 0), mask=is_column)
    tl.store(sums_of_program + width, tl.sum(bias_grad, 0), mask=is_column)
