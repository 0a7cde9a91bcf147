"""Dropout's random bits inside of kernels: those of `encoder.dropout.random_bits`, made where they are used."""

import triton
import triton.language as tl

_MIX: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9 - (1 << 64))
"""SplitMix64's first factor, as in `encoder.dropout`."""


@triton.jit
def bits_at(rows, columns, element):
    """Return the random bits of some elements, as integers in [-2**15, 2**15).

    Args:
        rows: Pointer to `RandomWords.rows`.
        columns: Pointer to `RandomWords.columns`, 512 of them.
        element: Numbers of the elements, int64, each of any shape; four stand in a word.
    """
    word = element >> 2
    mixed = tl.load(rows + (word >> 9)) * tl.load(columns + (word & 511))
    mixed = (mixed ^ (mixed >> 32)) * _MIX
    return (mixed >> ((element & 3) * 16)).to(tl.int16).to(tl.int32)
