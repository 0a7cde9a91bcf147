"""Attention over short runs of tokens by kernels of our own (`attention_kernels`): no filler, keyed dropout.

T tokens, N heads, D head size, H = N D, S runs, R row length.
"""

import torch
from torch import Tensor

from maskwright.kernels.dropout import RandomWords

LONGEST_RUN = 128
"""Tokens of the longest run that the kernels compute."""
_WORDS = 2048
"""Positions of a row of the table of random words."""


def forward(
    qkv: Tensor,
    offsets: Tensor,
    slots: Tensor,
    *,
    num_heads: int,
    longest: int,
    row_length: int,
    words: RandomWords | None,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Mix each token's values over the tokens of its run.

    Args:
        qkv: Queries, keys and values, each (N, D) inside. Shape (T, 3H), bf16, contiguous.
        offsets: Where runs begin and end; runs may be empty, and one of more than `longest` tokens is filler, whose
            results are zero. Shape (S+1,), int32, from 0 to T.
        slots: Slot of each run's first token, counted through all rows: what is dropped is drawn by a token's place in
            its row. Shape (S,), int64.
        num_heads: N.
        longest: Tokens of the longest run, or more.
        row_length: R; no run but filler goes beyond the end of its row.
        words: Random words for the shape (rows, N, R, R); None drops nothing.
        rate: Share of the attention probabilities dropped.

    Returns:
        The mixed values (T, H), and of each head and query the log-sum-exp of its scores to the base 2 (N, T), fp32.
    """
    from maskwright.kernels.cuda import attention_kernels as kernels

    tokens, head_size = len(qkv), qkv.shape[1] // (3 * num_heads)
    drops, largest = _largest_tile(longest, row_length, head_size, words)
    least, scale, rows, columns = _drawn(words, rate, slots)
    mixed = qkv.new_empty(tokens, num_heads * head_size)
    logsumexp = qkv.new_empty(num_heads, tokens, dtype=torch.float32)
    programs = len(slots) * num_heads
    if programs:
        kernels.forward[(programs,)](
            qkv,
            mixed,
            logsumexp,
            offsets,
            slots,
            rows,
            columns,
            tokens,
            num_heads,
            row_length,
            least,
            scale,
            D=head_size,
            LONGEST=largest,
            DROPS=drops,
            num_warps=8 if head_size == 128 else 4,
            num_stages=1,
            maxnreg=_registers(head_size, drops),
        )
    return mixed, logsumexp


def backward(
    slope: Tensor,
    qkv: Tensor,
    mixed: Tensor,
    logsumexp: Tensor,
    offsets: Tensor,
    slots: Tensor,
    *,
    num_heads: int,
    longest: int,
    row_length: int,
    words: RandomWords | None,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """Return the slope of `qkv` where the mixed values have a slope (see `forward`), and its sums over tokens.

    Args:
        slope: Of the mixed values. Shape (T, H), contiguous.
        qkv: As given to `forward`, as all that follows.
        mixed: What `forward` returned.
        logsumexp: The same.
        offsets: Shape (S+1,); the last is T, so that every number is written.
        slots: Shape (S,).
        num_heads: N.
        longest: Tokens of the longest run, or more.
        row_length: R.
        words: Random words.
        rate: Share dropped.

    Returns:
        Shape (T, 3H), laid as `qkv`, and (3H,), fp32, of which the keys' third is 0, as it is by algebra.
    """
    from maskwright.kernels.cuda import attention_kernels as kernels

    width = qkv.shape[1] // 3
    head_size = width // num_heads
    drops, largest = _largest_tile(longest, row_length, head_size, words)
    least, scale, rows, columns = _drawn(words, rate, slots)
    out = torch.empty_like(qkv)
    partial = qkv.new_empty(len(slots), 2, width, dtype=torch.float32)
    programs = len(slots) * num_heads
    if programs:
        kernels.backward[(programs,)](
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
            len(qkv),
            num_heads,
            row_length,
            least,
            scale,
            D=head_size,
            LONGEST=largest,
            BW=16 if head_size == 128 else 32,
            DROPS=drops,
            STAGES=1 if drops == kernels.SINGLE.value else 4,  # Words would be loaded in stages too.
            num_warps=4 if largest == 64 and head_size <= 64 else 8,
            num_stages=1,
            maxnreg=_registers(head_size, drops),
        )
    sums = qkv.new_zeros(3, width, dtype=torch.float32)
    torch.sum(partial, 0, out=sums[::2])
    return out, sums.view(-1)


def _largest_tile(longest: int, row_length: int, head_size: int, words: RandomWords | None) -> tuple[int, int]:
    # How masks are drawn, and how many keys the largest tile has.
    from maskwright.kernels.cuda import attention_kernels as kernels

    longest = min(longest, row_length)
    assert head_size in (16, 32, 64, 128)
    assert longest <= LONGEST_RUN
    drops = kernels.NONE
    if words is not None:
        drops = kernels.SINGLE
        # A tile begins with a word: up to three keys before the run, but not before its row.
        with_word = min(longest + 3, row_length)
        if row_length % 4 == 0 and with_word <= LONGEST_RUN:
            longest = with_word
            drops = kernels.WHOLE if _WORDS % row_length else kernels.CYCLIC
    return drops.value, 64 if longest <= 64 else 128


def _registers(head_size: int, drops: int) -> int:
    # With half of the 255 that a thread may have, twice as many programs share a multiprocessor, and little is spilled.
    from maskwright.kernels.cuda import attention_kernels as kernels

    return 128 if head_size <= 64 and drops != kernels.SINGLE.value else 255


def _drawn(words: RandomWords | None, rate: float, slots: Tensor) -> tuple[int, float, Tensor, Tensor]:
    if words is None:
        return 0, 1.0, slots, slots  # Tables that nobody reads.
    return *RandomWords.limits(rate), words.rows, words.columns
