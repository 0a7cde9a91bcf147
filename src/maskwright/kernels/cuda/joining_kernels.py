"""The kernel that lays the slopes of queries, keys and values side by side, and sums them over tokens meanwhile."""

import triton
import triton.language as tl


@triton.jit
def join(
    of_queries,
    of_keys,
    of_values,
    joined,
    partial,
    num_rows,
    width,
    rows_each,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy BLOCK columns of `rows_each` rows of one of three tensors (T, H) into (T, 3H); `partial` gets sums."""
    third = tl.program_id(2)
    given = of_queries
    if third == 1:
        given = of_keys
    elif third == 2:
        given = of_values
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = column < width
    joined += third * width
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, rows_each, ROWS):
        row = tl.program_id(0) * rows_each + begin + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & is_column[None, :]
        place = row.to(tl.int64)[:, None] * width
        values = tl.load(given + place + column[None, :], mask=inside, other=0.0)
        tl.store(joined + 3 * place + column[None, :], values, mask=inside)
        total += values.to(tl.float32)
    tl.store(partial + (3 * tl.program_id(0) + third) * width + column, tl.sum(total, 0), mask=is_column)
