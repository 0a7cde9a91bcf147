"""Triton kernels of the cross entropy over rows of bf16 scores: loss and gradients in one pass each, and sampling.

The first two are bound by memory: 4,928 rows of 30,528 scores are 301 MB. One reads them, the other reads them and
writes the gradients in their place. V is a multiple of 16, so that threads load 16 bytes at a time; in columns
behind the vocabulary the bias is -inf, and their gradients become 0.

Kernels are not specialized on what changes between batches (number of targets, alignment of their labels): each new
value would compile them again.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["labels", "losses", "log_sums", "is_right"])
def score_rows(scores, bias, labels, losses, log_sums, is_right, num_columns, BLOCK: tl.constexpr):
    """Write one row's loss, its log-sum-exp, and whether its best score is that of its label.

    One program a row.

    Args:
        scores: Pointer to the matmul of features and weights. Shape (M, V), bf16.
        bias: Pointer to what is added to each row. Shape (V,), fp32.
        labels: Pointer to the right columns. Shape (M,), int64.
        losses: Where cross entropies go. Shape (M,), fp32.
        log_sums: Where the logarithms of summed exponentials go. Shape (M,), fp32.
        is_right: Where 1 goes if no other score is higher, and no earlier one as high; else 0. Shape (M,), int32.
        num_columns: V.
        BLOCK: Columns of one step.
    """
    row = tl.program_id(0)
    scores += row.to(tl.int64) * num_columns
    label = tl.load(labels + row)
    of_label = tl.load(scores + label).to(tl.float32) + tl.load(bias + label)
    highest = tl.full((), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    is_beaten = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, num_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        # Programs side by side read the same bias: 122 kB of fp32, which the first-level cache can hold.
        of_column = tl.load(bias + column, mask=is_inside, other=0.0, eviction_policy="evict_last")
        score = tl.load(scores + column, mask=is_inside, other=float("-inf"), eviction_policy="evict_first")
        score = score.to(tl.float32) + of_column
        is_beaten |= ((score > of_label) | ((score == of_label) & (column < label))).to(tl.int32)
        # A row's first block has a finite score, so no -inf is taken from another.
        higher = tl.maximum(highest, tl.max(score, 0))
        sums = sums * tl.exp(highest - higher) + tl.exp(score - higher)
        highest = higher
    log_sum = highest + tl.log(tl.sum(sums, 0))
    tl.store(losses + row, log_sum - of_label)
    tl.store(log_sums + row, log_sum)
    tl.store(is_right + row, 1 - tl.max(is_beaten, 0))


@triton.jit(do_not_specialize=["num_targets", "num_rows"], do_not_specialize_on_alignment=["labels", "log_sums"])
def write_gradients(
    scores,
    bias,
    labels,
    log_sums,
    column_sums,
    num_targets,
    num_rows,
    num_columns,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write softmax minus one hot over the scores, and its sums over some rows beside.

    A program has BLOCK columns (axis 0) of ROWS rows (axis 1).

    Args:
        scores: Pointer to the matmul of features and weights, then gradients. Shape (N, V), bf16.
        bias: Pointer to what is added to each row. Shape (V,), fp32.
        labels: Pointer to the right columns. Shape (M,), int64.
        log_sums: Pointer to what `score_rows` wrote. Shape (M,), fp32.
        column_sums: Where sums over ROWS rows of unrounded gradients go. Shape (ceil(N / ROWS), V), fp32.
        num_targets: M.
        num_rows: N, at least M; the gradients of rows behind the targets are 0.
        num_columns: V.
        ROWS: Rows of a program, one after the other.
        BLOCK: Columns of a program.
    """
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < num_columns
    of_column = tl.load(bias + column, mask=is_inside, other=0.0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for step in range(ROWS):
        row = tl.program_id(1) * ROWS + step
        is_target, is_here = row < num_targets, is_inside & (row < num_rows)
        label = tl.load(labels + row, mask=is_target, other=-1)
        # Beside an infinite sum every share is 0.
        log_sum = tl.load(log_sums + row, mask=is_target, other=float("inf"))
        place = scores + row.to(tl.int64) * num_columns + column
        score = tl.load(place, mask=is_here, other=0.0).to(tl.float32) + of_column
        gradient = tl.exp(score - log_sum) - tl.where(column == label, 1.0, 0.0)
        sums += gradient
        tl.store(place, gradient.to(tl.bfloat16), mask=is_here)
    tl.store(column_sums + tl.program_id(1).to(tl.int64) * num_columns + column, sums, mask=is_inside)


@triton.jit(do_not_specialize_on_alignment=["numbers", "sampled"])
def sample_rows(scores, bias, numbers, sampled, num_columns, BLOCK: tl.constexpr):
    """Write the column at which a row's summed probabilities, in the order of columns, pass a number.

    One program a row. The sums of blocks are added in the same order each time, so that results are reproducible.

    Args:
        scores: Pointer to the matmul of features and weights. Shape (M, V), fp32.
        bias: Pointer to what is added to each row. Shape (V,), fp32.
        numbers: Pointer to uniform numbers in [0, 1). Shape (M,), fp32.
        sampled: Where the columns go. Shape (M,), int64.
        num_columns: V.
        BLOCK: Columns of one step.
    """
    row = tl.program_id(0)
    scores += row.to(tl.int64) * num_columns
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, num_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        of_column = tl.load(bias + column, mask=is_inside, other=0.0, eviction_policy="evict_last")
        score = tl.load(scores + column, mask=is_inside, other=float("-inf")) + of_column
        highest = tl.maximum(highest, score)
    top = tl.max(highest, 0)
    total = tl.zeros((), tl.float32)
    for start in range(0, num_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        of_column = tl.load(bias + column, mask=is_inside, other=0.0, eviction_policy="evict_last")
        score = tl.load(scores + column, mask=is_inside, other=float("-inf")) + of_column
        total += tl.sum(tl.exp(score - top), 0)
    # Rounding must not carry a number near 1 beyond the last column that has any probability.
    wanted = tl.minimum(tl.load(numbers + row), 0.99999994) * total
    passed = tl.zeros((), tl.float32)
    found = tl.full((), -1, tl.int32)
    for start in range(0, num_columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        is_inside = column < num_columns
        of_column = tl.load(bias + column, mask=is_inside, other=0.0, eviction_policy="evict_last")
        score = tl.load(scores + column, mask=is_inside, other=float("-inf")) + of_column
        share = tl.exp(score - top)
        after = passed + tl.sum(share, 0)
        before = tl.sum((passed + tl.cumsum(share, 0) <= wanted).to(tl.int32), 0)
        last = tl.max(tl.where(share > 0, tl.arange(0, BLOCK), 0), 0)
        found = tl.where((found < 0) & (after > wanted), start + tl.minimum(before, last), found)
        passed = after
    # In a row of NaNs token 0 is sampled; the loss is NaN too, and the step raises.
    tl.store(sampled + row, tl.maximum(found, 0).to(tl.int64))
