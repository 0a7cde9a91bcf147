"""What losses over a vocabulary have in common that hold no more than one block of scores at a time.

M targets, R of them in a block, V entries, E width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 25
"""Most scores held at a time: 128 MiB in fp32, 1099 targets at 30522 entries."""


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of sums and distributions: fp32, or finer where the factors are."""
    return torch.promote_types(dtype, torch.float32)


def in_blocks(
    features: Tensor, weight: Tensor, count: int, rows: int, slopes_of: Callable[[slice, Tensor], Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Score targets block by block, and sum the gradients of what their scores are products of.

    Args:
        features: In the precision of the products. Shape (M, E), or more rows, which count for nothing.
        weight: In the same. Shape (V, E).
        count: M.
        rows: R.
        slopes_of: Scores a block and adds up what is asked of it. Given which targets it holds and their features, and
            behind the last target perhaps rows that count for nothing; returns the slopes of their scores in the
            precision of the products, of shape (rows given, V), or None where no gradients are wanted.

    Returns:
        The gradients of the features, in their shape and precision (of no meaning where none are wanted), and of the
        weight, for `ended`.
    """
    features_grad = torch.empty_like(features)
    weight_grad: Tensor | None = None
    for begin in range(0, count, rows):
        part = slice(begin, begin + rows)
        block = features[part]
        slopes = slopes_of(part, block)
        if slopes is not None:
            features_grad[part] = slopes @ weight
            its = slopes.T @ block
            # In fp32 once there are several.
            weight_grad = its if weight_grad is None else weight_grad.to(exact_dtype(weight.dtype)).add_(its)
            del slopes, its  # Before there are others.
    features_grad[-(-count // rows) * rows :] = 0  # Whole blocks of rows that count for nothing.
    return features_grad, weight_grad


def ended(total: Tensor | None, weight: Tensor) -> Tensor:
    """Return the gradient of the vocabulary in its own precision; without any block, zeros.

    Args:
        total: From `in_blocks`.
        weight: Shape (V, E).
    """
    return torch.zeros_like(weight) if total is None else total.to(weight.dtype)


def keep(ctx: Any, *gradients: Tensor) -> None:
    """Save gradients that were computed in the forward pass, for one backward pass."""
    ctx.save_for_backward(*gradients)
    ctx.is_spent = False


def spend(ctx: Any) -> tuple[Tensor, ...]:
    """Return the gradients that `keep` saved, which may now be overwritten.

    Raises:
        RuntimeError: If it is called again, which `retain_graph=True` makes possible.
    """
    if ctx.is_spent:
        raise RuntimeError(
            "the gradients of this loss were scaled in place by the first backward pass: compute the loss again"
        )
    ctx.is_spent = True
    kept: tuple[Tensor, ...] = ctx.saved_tensors
    return kept


def scaled_once(ctx: Any, slope: Tensor) -> list[Tensor]:
    """Return the gradients that `keep` saved times the slope of the forward pass's result, each in its own memory.

    The vocabulary's gradient is as large as its matrix, and this is where a step holds most: there is no second one.

    Raises:
        RuntimeError: As `spend`.
    """
    return [gradient.mul_(slope) for gradient in spend(ctx)]
