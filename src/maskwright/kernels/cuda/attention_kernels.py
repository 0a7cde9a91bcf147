"""Triton kernels of attention over short sequences: one program per head and sequence, forward and backward.

The score matrix stays in registers, so only the results are written to memory, and no two programs add to the same
numbers. The softmax and all sums are in fp32, matmul inputs in the precision of the tokens.

Four neighbors in a row of the score matrix share a 64-bit random number (`kernels.dropout`). So the keys of a tile are
ordered by their position in it: the first of each four, then the second of each, and so on. Sums over keys need no
order, and a random number is computed once, by the thread that needs its four parts.

T tokens, N heads, D head size, H = N D, R side of a sequence's dropout mask; BM queries of a tile, BW random numbers of
a tile's row. `mask_offset` is the number of mask values before those of a sequence's head. `before` is always 0: with a
constant in its place Triton 3.6 computes wrong addresses. WINDOW is the number of tokens to either side that a token
attends to, 0 for all.
"""

import triton
import triton.language as tl

from maskwright.core.randomness import SPLITMIX_MULTIPLIERS

_MIX: tl.constexpr = tl.constexpr(SPLITMIX_MULTIPLIERS[0] - (1 << 64))
"""As a signed number, as in `kernels.dropout`."""
_LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _flags(random_rows, random_columns, mask_offset, stride, keep_threshold, i, length, BW: tl.constexpr):
    # Which of its four values a random number keeps, as four bits. Shape (BM, BW), int32. R divides the 2048 values of
    # a row of the table, so a row of the score matrix lies in one row of the table.
    first = (mask_offset + i * stride) >> 2
    factors = tl.load(random_rows + (first >> 9), i < length, 0)[:, None]
    numbers = (first & 511).to(tl.int32)[:, None] + tl.arange(0, BW)[None, :]
    random_bits = factors * tl.load(random_columns + (numbers & 511))
    random_bits = (random_bits ^ (random_bits >> 32)) * _MIX
    # Bits are compared as the upper halves of signed 32-bit numbers: what lies below them does not matter then.
    low, high, limit = random_bits.to(tl.int32), (random_bits >> 32).to(tl.int32), keep_threshold << 16
    flags = tl.where((low << 16) >= limit, 1, 0) | tl.where(low >= limit, 2, 0)
    return flags | tl.where((high << 16) >= limit, 4, 0) | tl.where(high >= limit, 8, 0)


@triton.jit
def _forward_tile(
    query, key, value, context, logsumexp, random_rows, random_columns, mask_offset, length, before, width, stride,
    keep_threshold, scale, D: tl.constexpr, BW: tl.constexpr, DROPS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    BM: tl.constexpr = 64
    factor: tl.constexpr = _LOG2_E * D**-0.5
    d = tl.arange(0, D)[None, :]
    j = tl.arange(0, 4 * BW)
    if DROPS:
        j = 4 * (j % BW) + j // BW - before
    inside = (j >= 0) & (j < length)
    keys = tl.load(key + j[:, None] * width + d, inside[:, None], 0.0)
    values = tl.load(value + j[:, None] * width + d, inside[:, None], 0.0)
    for begin in range(0, length, BM):
        i = begin + tl.arange(0, BM)
        is_query = i < length
        queries = tl.load(query + i[:, None] * width + d, is_query[:, None], 0.0)
        attends = inside[None, :]
        if WINDOW > 0:
            attends = attends & (tl.abs(i[:, None] - j[None, :]) <= WINDOW)
        scores = tl.where(attends, tl.dot(queries, tl.trans(keys)), float("-inf"))
        top = tl.max(scores, 1) * factor
        parts = tl.exp2(scores * factor - top[:, None])
        total = tl.sum(parts, 1)
        if DROPS:
            flags = _flags(random_rows, random_columns, mask_offset, stride, keep_threshold, i, length, BW)
            kept = (flags[:, None, :] >> tl.arange(0, 4)[None, :, None]) & 1
            parts = tl.where(tl.reshape(kept, (BM, 4 * BW)) != 0, parts, 0.0)
        sums = tl.dot(parts.to(values.dtype), values) * (scale / total)[:, None]
        tl.store(context + i[:, None] * width + d, sums.to(values.dtype), is_query[:, None])
        tl.store(logsumexp + i, top + tl.log2(total), is_query)


@triton.jit(do_not_specialize=["num_tokens", "keep_threshold", "before"])
def forward(
    query, key, value, context, logsumexp, cu_seqlens, random_rows, random_columns, num_tokens, num_heads, stride,
    keep_threshold, before, scale, D: tl.constexpr, LONGEST: tl.constexpr, DROPS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Compute the context (T, H) and each query's log-sum-exp, to the base 2, of its scores (N, T).

    A sequence gets a tile of 64 or, where LONGEST is 128, of 128 keys.
    """
    sequence, head = tl.program_id(0) // num_heads, tl.program_id(0) % num_heads
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    width = num_heads * D
    mask_offset = tl.program_id(0).to(tl.int64) * stride * stride
    first = start.to(tl.int64) * width + head * D
    logsumexp += head.to(tl.int64) * num_tokens + start
    if length > 64:
        if LONGEST > 64:
            _forward_tile(
                query + first, key + first, value + first, context + first, logsumexp, random_rows, random_columns,
                mask_offset, length, before, width, stride, keep_threshold, scale, D, 32, DROPS, WINDOW,
            )  # fmt: skip
    else:
        _forward_tile(
            query + first, key + first, value + first, context + first, logsumexp, random_rows, random_columns,
            mask_offset, length, before, width, stride, keep_threshold, scale, D, 16, DROPS, WINDOW,
        )  # fmt: skip


@triton.jit
def _backward_tile(
    grad, query, key, value, context, logsumexp, query_grad, key_grad, value_grad, random_rows, random_columns,
    mask_offset, length, before, width, stride, keep_threshold, scale, D: tl.constexpr, BM: tl.constexpr,
    BW: tl.constexpr, DROPS: tl.constexpr, WINDOW: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    # All queries of the sequence are held at once; keys come BW at a time, those of one position in their random number
    # together.
    alpha: tl.constexpr = D**-0.5
    factor: tl.constexpr = _LOG2_E * alpha
    d = tl.arange(0, D)[None, :]
    i = tl.arange(0, BM)
    is_query = i < length
    offsets = i[:, None] * width + d
    queries = tl.load(query + offsets, is_query[:, None], 0.0)
    grads = tl.load(grad + offsets, is_query[:, None], 0.0)
    results = tl.load(context + offsets, is_query[:, None], 0.0)
    total = tl.load(logsumexp + i, is_query, 0.0)
    query_grads = tl.zeros((BM, D), tl.float32)
    for begin in tl.static_range(0, BM, 4 * BW):
        if DROPS:
            flags = _flags(random_rows, random_columns, mask_offset + begin, stride, keep_threshold, i, length, BW)
        if begin == 0:  # Not before: the random numbers are computed while the tokens are loaded.
            mean = tl.sum(grads.to(tl.float32) * results.to(tl.float32), 1)
        for part in tl.range(0, 4, num_stages=STAGES):
            j = begin + 4 * tl.arange(0, BW) + part - before
            inside = (j >= 0) & (j < length)
            key_offsets = j[:, None] * width + d
            keys = tl.load(key + key_offsets, inside[:, None], 0.0)
            values = tl.load(value + key_offsets, inside[:, None], 0.0)
            shares = tl.exp2(tl.dot(queries, tl.trans(keys)) * factor - total[:, None])
            attends = inside[None, :]
            if WINDOW > 0:
                attends = attends & (tl.abs(i[:, None] - j[None, :]) <= WINDOW)
            shares = tl.where(attends, shares, 0.0)
            share_grads = tl.dot(grads, tl.trans(values))
            used = shares
            if DROPS:
                kept = ((flags >> part) & 1) != 0
                used = tl.where(kept, shares, 0.0)
                share_grads = tl.where(kept, share_grads * scale, 0.0)
            score_grads = (shares * (share_grads - mean[:, None])).to(keys.dtype)
            value_grads = tl.dot(tl.trans(grads), used.to(keys.dtype)) * scale
            key_grads = tl.dot(tl.trans(queries), score_grads) * alpha
            query_grads = tl.dot(score_grads, keys, query_grads)
            tl.store(key_grad + key_offsets, tl.trans(key_grads.to(keys.dtype)), inside[:, None])
            tl.store(value_grad + key_offsets, tl.trans(value_grads.to(keys.dtype)), inside[:, None])
    tl.store(query_grad + offsets, (query_grads * alpha).to(queries.dtype), is_query[:, None])


@triton.jit(do_not_specialize=["num_tokens", "keep_threshold", "before"])
def backward(
    grad, query, key, value, context, logsumexp, query_grad, key_grad, value_grad, cu_seqlens, random_rows,
    random_columns, num_tokens, num_heads, stride, keep_threshold, before, scale, D: tl.constexpr,
    LONGEST: tl.constexpr, BW: tl.constexpr, DROPS: tl.constexpr, WINDOW: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of queries, keys and values, each (T, H)."""
    sequence, head = tl.program_id(0) // num_heads, tl.program_id(0) % num_heads
    start = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - start
    width = num_heads * D
    mask_offset = tl.program_id(0).to(tl.int64) * stride * stride
    first = start.to(tl.int64) * width + head * D
    logsumexp += head.to(tl.int64) * num_tokens + start
    if length > 64:
        if LONGEST > 64:
            _backward_tile(
                grad + first, query + first, key + first, value + first, context + first, logsumexp, query_grad + first,
                key_grad + first, value_grad + first, random_rows, random_columns, mask_offset, length, before, width,
                stride, keep_threshold, scale, D, 128, BW, DROPS, WINDOW, STAGES,
            )  # fmt: skip
    elif length > 0:
        _backward_tile(
            grad + first, query + first, key + first, value + first, context + first, logsumexp, query_grad + first,
            key_grad + first, value_grad + first, random_rows, random_columns, mask_offset, length, before, width,
            stride, keep_threshold, scale, D, 64, 16, DROPS, WINDOW, STAGES,
        )  # fmt: skip
