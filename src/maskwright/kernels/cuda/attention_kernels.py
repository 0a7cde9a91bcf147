"""Kernels of attention over short runs of tokens: one program for each head of each run, forward and backward.

A run's square of scores lies in registers, so nothing is written to memory but the results, and no two programs add to
the same numbers. The softmax and all sums are in fp32, the products' inputs in the precision of the tokens.

Four neighbours in a row of the square share a word of dropout's random bits (`encoder.dropout.RandomWords`). So the
keys of a tile are not taken in their order but by their place in a word: the first of each word, then the second of
each, and so on. Sums over keys do not ask for an order, and a word is made once, by the thread that needs its four
parts. For that a tile begins at the word in which the run begins, up to three keys before the run.

The bias of the projection to keys has no slope: it adds the same to all scores of a query, which the softmax ignores.
So sums over tokens are made of the slopes of queries and of values only.

T tokens, N heads, D head size, H = N D, S runs, R row length; BM queries of a tile, BW words of a tile's row.
"""

import triton
import triton.language as tl

from maskwright.kernels.cuda.word_kernels import _MIX, bits_at

NONE: tl.constexpr = tl.constexpr(0)
"""Nothing is dropped."""
CYCLIC: tl.constexpr = tl.constexpr(1)
"""R divides the 2048 positions of a row of the table: a row of the square lies in one row of the table."""
WHOLE: tl.constexpr = tl.constexpr(2)
"""R is a multiple of 4: a row of the square begins with a word."""
SINGLE: tl.constexpr = tl.constexpr(3)
"""Each element makes its word by itself."""

_LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _find(offsets, slots, run, head, num_heads, row_length, DROPS: tl.constexpr):
    # A run's first token and its length, how many keys of its tile are before it, and the number of the tile's first
    # element among those of the masks.
    start = tl.load(offsets + run)
    length = tl.load(offsets + run + 1) - start
    before = 0
    square = tl.zeros((), tl.int64)
    if DROPS != NONE:
        slot = tl.load(slots + run)
        place = slot % row_length
        if DROPS != SINGLE:
            before = (place & 3).to(tl.int32)
        square = ((slot // row_length * num_heads + head) * row_length + place) * row_length + place - before
    return start, length, before, square


@triton.jit
def _flags(rows, columns, square, row_length, least, i, length, end, BW: tl.constexpr, DROPS: tl.constexpr):
    # Which of its four elements a word keeps, as four bits. Shape (BM, BW), int32.
    first = (square + i * row_length) >> 2
    w = tl.arange(0, BW)
    real = i < length
    if DROPS == CYCLIC:
        factors = tl.load(rows + (first >> 9), real, 0)[:, None]
        numbers = (first & 511).to(tl.int32)[:, None] + w[None, :]
    else:
        numbers = first[:, None] + w[None, :]
        factors = tl.load(rows + (numbers >> 9), real[:, None] & (4 * w < end)[None, :], 0)
    words = factors * tl.load(columns + (numbers & 511))
    words = (words ^ (words >> 32)) * _MIX
    # Bits are compared as the upper halves of signed 32-bit numbers: what lies below them does not matter then.
    low, high, limit = words.to(tl.int32), (words >> 32).to(tl.int32), least << 16
    flags = tl.where((low << 16) >= limit, 1, 0) | tl.where(low >= limit, 2, 0)
    return flags | tl.where((high << 16) >= limit, 4, 0) | tl.where(high >= limit, 8, 0)


@triton.jit
def _kept(rows, columns, square, row_length, least, i, j, real, there):
    # Whether elements are kept, each by a word of its own. Shape (BM, BN), bool.
    element = square + i[:, None] * row_length + j[None, :]
    return bits_at(rows, columns, tl.where(real[:, None] & there[None, :], element, 0)) >= least


@triton.jit
def _clear(out, stride, length, NUMBERS: tl.constexpr):
    # Nothing for tokens that are too many for a run.
    d = tl.arange(0, NUMBERS)[None, :]
    for begin in range(0, length, 64):
        i = begin + tl.arange(0, 64)[:, None]
        tl.store(out + i * stride + d, tl.zeros((64, NUMBERS), out.dtype.element_ty), i < length)


@triton.jit
def _forward_run(
    qkv,
    mixed,
    logsumexp,
    rows,
    columns,
    square,
    length,
    before,
    num_heads,
    row_length,
    least,
    scale,
    D: tl.constexpr,
    BW: tl.constexpr,
    DROPS: tl.constexpr,
):
    BM: tl.constexpr = 64
    factor: tl.constexpr = _LOG2_E * D**-0.5
    width = num_heads * D
    d = tl.arange(0, D)[None, :]
    j = tl.arange(0, 4 * BW)
    if DROPS != NONE:  # Only where words ask for it: without `before`, Triton 3.6 makes wrong addresses of this.
        j = 4 * (j % BW) + j // BW - before
    there = (j >= 0) & (j < length)
    of_keys = width + j[:, None] * (3 * width) + d
    keys = tl.load(qkv + of_keys, there[:, None], 0.0)
    values = tl.load(qkv + width + of_keys, there[:, None], 0.0)
    for begin in range(0, length, BM):
        i = begin + tl.arange(0, BM)
        real = i < length
        queries = tl.load(qkv + i[:, None] * (3 * width) + d, real[:, None], 0.0)
        scores = tl.where(there[None, :], tl.dot(queries, tl.trans(keys)), float("-inf"))
        top = tl.max(scores, 1) * factor
        parts = tl.exp2(scores * factor - top[:, None])
        total = tl.sum(parts, 1)
        if DROPS == SINGLE:
            kept = _kept(rows, columns, square, row_length, least, i, j, real, there)
            parts = tl.where(kept, parts, 0.0)
        elif DROPS != NONE:
            flags = _flags(rows, columns, square, row_length, least, i, length, length + before, BW, DROPS)
            kept = (flags[:, None, :] >> tl.arange(0, 4)[None, :, None]) & 1
            parts = tl.where(tl.reshape(kept, (BM, 4 * BW)) != 0, parts, 0.0)
        sums = tl.dot(parts.to(values.dtype), values) * (scale / total)[:, None]
        tl.store(mixed + i[:, None] * width + d, sums.to(values.dtype), real[:, None])
        tl.store(logsumexp + i, top + tl.log2(total), real)


@triton.jit(do_not_specialize=["num_tokens", "least"])
def forward(
    qkv,
    mixed,
    logsumexp,
    offsets,
    slots,
    rows,
    columns,
    num_tokens,
    num_heads,
    row_length,
    least,
    scale,
    D: tl.constexpr,
    LONGEST: tl.constexpr,
    DROPS: tl.constexpr,
):
    """Mix values and keep each query's log-sum-exp, to the base 2, of its scores (`attention.forward`).

    A run is given a tile of 64 or 128 keys; one that needs more than LONGEST gets zeros.
    """
    head = tl.program_id(0) % num_heads
    start, length, before, square = _find(
        offsets, slots, tl.program_id(0) // num_heads, head, num_heads, row_length, DROPS
    )
    end = before + length
    if length == 0:
        return
    first = start.to(tl.int64) * num_heads * D
    qkv += 3 * first + head * D
    mixed += first + head * D
    logsumexp += head.to(tl.int64) * num_tokens + start
    if end > LONGEST:
        _clear(mixed, num_heads * D, length, D)
    elif end > 64:
        if LONGEST > 64:
            _forward_run(
                qkv, mixed, logsumexp, rows, columns, square, length, before, num_heads, row_length, least, scale,
                D, 32, DROPS,
            )  # fmt: skip
    else:
        _forward_run(
            qkv, mixed, logsumexp, rows, columns, square, length, before, num_heads, row_length, least, scale,
            D, 16, DROPS,
        )  # fmt: skip


@triton.jit
def _backward_run(
    slope,
    qkv,
    mixed,
    logsumexp,
    out,
    partial,
    rows,
    columns,
    square,
    length,
    before,
    num_heads,
    row_length,
    least,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BW: tl.constexpr,
    DROPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    # All queries of the run are there at once; keys come BW at a time, those of one place in a word together.
    alpha: tl.constexpr = D**-0.5
    factor: tl.constexpr = _LOG2_E * alpha
    width = num_heads * D
    d = tl.arange(0, D)[None, :]
    i = tl.arange(0, BM)
    real = i < length
    of_queries = i[:, None] * (3 * width) + d
    of_tokens = i[:, None] * width + d
    queries = tl.load(qkv + of_queries, real[:, None], 0.0)
    slopes = tl.load(slope + of_tokens, real[:, None], 0.0)
    results = tl.load(mixed + of_tokens, real[:, None], 0.0)
    total = tl.load(logsumexp + i, real, 0.0)
    to_queries = tl.zeros((BM, D), tl.float32)
    weights = tl.zeros((BM,), tl.float32)
    for begin in tl.static_range(0, BM, 4 * BW):
        if (DROPS == CYCLIC) | (DROPS == WHOLE):
            flags = _flags(
                rows, columns, square + begin, row_length, least, i, length, before + length - begin, BW, DROPS
            )
        if begin == 0:  # Not before: the random words are made while the tokens are on their way.
            mean = tl.sum(slopes.to(tl.float32) * results.to(tl.float32), 1)
        for part in tl.range(0, 4, num_stages=STAGES):
            j = begin + 4 * tl.arange(0, BW) + part - before
            there = (j >= 0) & (j < length)
            of_keys = width + j[:, None] * (3 * width) + d
            keys = tl.load(qkv + of_keys, there[:, None], 0.0)
            values = tl.load(qkv + width + of_keys, there[:, None], 0.0)
            shares = tl.exp2(tl.dot(queries, tl.trans(keys)) * factor - total[:, None])
            shares = tl.where(there[None, :], shares, 0.0)
            to_shares = tl.dot(slopes, tl.trans(values))
            used = shares
            if DROPS != NONE:
                if DROPS == SINGLE:
                    kept = _kept(rows, columns, square, row_length, least, i, j, real, there)
                else:
                    kept = ((flags >> part) & 1) != 0
                used = tl.where(kept, shares, 0.0)
                to_shares = tl.where(kept, to_shares * scale, 0.0)
                weights += tl.sum(used, 1)
            to_scores = (shares * (to_shares - mean[:, None])).to(keys.dtype)
            to_values = tl.dot(tl.trans(slopes), used.to(keys.dtype)) * scale
            to_keys = tl.dot(tl.trans(queries), to_scores) * alpha
            to_queries = tl.dot(to_scores, keys, to_queries)
            tl.store(out + of_keys, tl.trans(to_keys.to(keys.dtype)), there[:, None])
            tl.store(out + width + of_keys, tl.trans(to_values.to(keys.dtype)), there[:, None])
    to_queries *= alpha
    tl.store(out + of_queries, to_queries.to(queries.dtype), real[:, None])
    column = tl.arange(0, D)
    tl.store(partial + column, tl.sum(to_queries, 0))
    # The values' slopes, summed over keys: each token's slope times how much of all values it took.
    slopes = tl.load(slope + of_tokens, real[:, None], 0.0).to(tl.float32)
    if DROPS != NONE:
        slopes *= (weights * scale)[:, None]
    tl.store(partial + width + column, tl.sum(slopes, 0))


@triton.jit(do_not_specialize=["num_tokens", "least"])
def backward(
    slope,
    qkv,
    mixed,
    logsumexp,
    out,
    partial,
    offsets,
    slots,
    rows,
    columns,
    num_tokens,
    num_heads,
    row_length,
    least,
    scale,
    D: tl.constexpr,
    LONGEST: tl.constexpr,
    BW: tl.constexpr,
    DROPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Make the slope of queries, keys and values, and of queries and values their sums (`attention.backward`).

    LONGEST is as in `forward`. Of runs that need more than 64 keys BW are taken at once.
    """
    head = tl.program_id(0) % num_heads
    run = tl.program_id(0) // num_heads
    start, length, before, square = _find(offsets, slots, run, head, num_heads, row_length, DROPS)
    end = before + length
    first = start.to(tl.int64) * num_heads * D
    slope += first + head * D
    qkv += 3 * first + head * D
    mixed += first + head * D
    logsumexp += head.to(tl.int64) * num_tokens + start
    out += 3 * first + head * D
    partial += (2 * run.to(tl.int64) * num_heads + head) * D
    if (length == 0) | (end > LONGEST):
        for half in tl.static_range(2):
            tl.store(partial + half * num_heads * D + tl.arange(0, D), tl.zeros((D,), tl.float32))
        for third in tl.static_range(3):
            _clear(out + third * num_heads * D, 3 * num_heads * D, length, D)
    elif end > 64:
        if LONGEST > 64:
            _backward_run(
                slope, qkv, mixed, logsumexp, out, partial, rows, columns, square, length, before, num_heads,
                row_length, least, scale, D, 128, BW, DROPS, STAGES,
            )  # fmt: skip
    else:
        _backward_run(
            slope, qkv, mixed, logsumexp, out, partial, rows, columns, square, length, before, num_heads,
            row_length, least, scale, D, 64, 16, DROPS, STAGES,
        )  # fmt: skip
