"""Launches of `sublayer_kernels` and `joining_kernels`: how many rows a program takes, and its passes over tensors.

T tokens, I inner width, H hidden size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.kernels.dropout import DropoutKey, RandomWords

_PROGRAMS = 264
"""Programs of the passes that add up over rows, two for each of 132 multiprocessors: each writes a row of sums."""
_TILE = 4096
"""Elements of the rows that a program holds at a time."""
_ACTIVATION_BLOCK, _ACTIVATION_COLUMNS, _ACTIVATION_ROWS = 2048, 128, 16
_JOIN_COLUMNS, _JOIN_ROWS = 128, 32

ACTIVATIONS = {"gelu": 0, "gelu_tanh": 1, "relu": 2}
"""Activations by their names for `core.tensors.activation`, and their numbers in the kernels."""


@dataclass(frozen=True, slots=True)
class Closing:
    """How a sublayer ends: the words of its dropout (None drops nothing), their rate, LayerNorm's epsilon."""

    words: RandomWords | None
    rate: float
    epsilon: float

    @classmethod
    def of(cls, shape: torch.Size, norm: nn.LayerNorm, rate: float, key: DropoutKey | None, call: int) -> "Closing":
        """Return what ends a sublayer over values of a shape (T, H), at a dropout call; no key drops nothing."""
        words = RandomWords.of(shape, key, call) if key is not None and rate else None
        return cls(words, rate, norm.eps)

    def drawn(self, stand_in: Tensor) -> tuple[Tensor, Tensor, int, float]:
        """Return what kernels drop by: words of rows and columns, the least bits kept, and the scale.

        Args:
            stand_in: Any tensor, where nothing is dropped.
        """
        if self.words is None:
            return stand_in, stand_in, 0, 1.0
        return self.words.rows, self.words.columns, *self.words.limits(self.rate)


def norm_forward(
    values: Tensor, residual: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, closing: Closing
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm(residual + dropout(values + bias)), what is normed, and each row's mean and 1 / deviation.

    Args:
        values: Shape (T, H); what is normed takes its place.
        residual: Shape (T, H).
        bias: Shape (H,), fp32, as the following.
        weight: Shape (H,).
        shift: Shape (H,).
        closing: What is dropped, and epsilon.
    """
    from maskwright.kernels.cuda import sublayer_kernels as kernels

    num_rows, width = values.shape
    block = next_power_of_two(width)
    rows = max(1, _TILE // block)
    result = torch.empty_like(residual)
    about = torch.empty(num_rows, 2, dtype=torch.float32, device=values.device)
    words, columns, least, scale = closing.drawn(about)
    kernels.norm_forward[(-(-num_rows // rows),)](
        values,
        bias,
        residual,
        weight,
        shift,
        values,
        result,
        about,
        words,
        columns,
        num_rows,
        width,
        least,
        scale,
        closing.epsilon,
        DROPS=closing.words is not None,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )
    return result, values, about


def norm_backward(
    slope: Tensor, sums: Tensor, about: Tensor, weight: Tensor, closing: Closing
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slopes of the residual, of the values before the bias, and of LayerNorm's weights and the bias.

    Args:
        slope: Of the result. Shape (T, H), contiguous.
        sums: From `norm_forward`.
        about: From `norm_forward`.
        weight: Shape (H,).
        closing: As `norm_forward` was given it.

    Returns:
        Shapes (T, H), (T, H) (without dropout a copy), (3, H) in fp32.
    """
    from maskwright.kernels.cuda import sublayer_kernels as kernels

    num_rows, width = sums.shape
    block = next_power_of_two(width)
    rows = max(1, _TILE // block)
    rows_each = rows_each_of(num_rows, rows, _PROGRAMS)
    programs = -(-num_rows // rows_each)
    to_residual = torch.empty_like(sums)
    drops = closing.words is not None
    to_values = torch.empty_like(sums) if drops else to_residual
    partial = torch.empty(programs, 3, width, dtype=torch.float32, device=sums.device)
    words, columns, least, scale = closing.drawn(about)
    kernels.norm_backward[(programs,)](
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
        DROPS=drops,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )
    # The first gets another slope added in place, which the second must not see.
    return to_residual, to_values if drops else to_residual.clone(), partial.sum(0)


def activation_forward(values: Tensor, bias: Tensor, kind: str) -> Tensor:
    """Return an activation of values + bias. Shapes (T, I) and (I,); kind: a key of `ACTIVATIONS`."""
    from maskwright.kernels.cuda import sublayer_kernels as kernels

    result, count = torch.empty_like(values), values.numel()
    kernels.activation_forward[(-(-count // _ACTIVATION_BLOCK),)](
        values, bias, result, count, values.shape[1], KIND=ACTIVATIONS[kind], BLOCK=_ACTIVATION_BLOCK, num_warps=8
    )
    return result


def activation_backward_(slope: Tensor, values: Tensor, bias: Tensor, kind: str) -> Tensor:
    """Turn, in place, the slope of an activation's output into that of its input; return the bias's.

    Args:
        slope: Shape (T, I).
        values: What `activation_forward` was given.
        bias: Shape (I,), fp32.
        kind: A key of `ACTIVATIONS`.

    Returns:
        Shape (I,), fp32.
    """
    from maskwright.kernels.cuda import sublayer_kernels as kernels

    num_rows, width = values.shape
    across = -(-width // _ACTIVATION_COLUMNS)
    rows_each = rows_each_of(num_rows, _ACTIVATION_ROWS, 8 * _PROGRAMS // across)
    programs = -(-num_rows // rows_each)
    partial = torch.empty(programs, width, dtype=torch.float32, device=values.device)
    kernels.activation_backward[(programs, across)](
        slope,
        values,
        bias,
        partial,
        num_rows,
        width,
        rows_each,
        KIND=ACTIVATIONS[kind],
        ROWS=_ACTIVATION_ROWS,
        BLOCK=_ACTIVATION_COLUMNS,
        num_warps=8,
    )
    return partial.sum(0)


def join(of_queries: Tensor, of_keys: Tensor, of_values: Tensor) -> tuple[Tensor, Tensor]:
    """Lay slopes of queries, keys and values side by side. Each of shape (T, N, D), contiguous.

    Returns:
        Shape (T, 3H), and its sums over tokens, shape (3H,), fp32.
    """
    from maskwright.kernels.cuda import joining_kernels as kernels

    num_rows, width = len(of_queries), of_queries.shape[1] * of_queries.shape[2]
    across = -(-width // _JOIN_COLUMNS)
    rows_each = rows_each_of(num_rows, _JOIN_ROWS, 8 * _PROGRAMS // (3 * across))
    programs = -(-num_rows // rows_each)
    joined = of_queries.new_empty(num_rows, 3 * width)
    partial = of_queries.new_empty(programs, 3 * width, dtype=torch.float32)
    kernels.join[(programs, across, 3)](
        of_queries,
        of_keys,
        of_values,
        joined,
        partial,
        num_rows,
        width,
        rows_each,
        ROWS=_JOIN_ROWS,
        BLOCK=_JOIN_COLUMNS,
        num_warps=8,
    )
    return joined, partial.sum(0)


def rows_each_of(num_rows: int, tile: int, programs: int) -> int:
    """Return how many rows a program takes: whole tiles, so that there are about as many programs as wanted."""
    return max(1, -(-num_rows // (max(1, programs) * tile))) * tile


def next_power_of_two(width: int) -> int:
    """Return the least power of two from a width on."""
    return 1 << (width - 1).bit_length()
