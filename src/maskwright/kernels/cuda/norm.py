"""Dropout, residual and LayerNorm in one Triton kernel each way, in bf16. T tokens, H hidden size."""

from typing import Any

import torch
from torch import Tensor, nn

from maskwright.kernels.dropout import DropoutMask, kernel_arguments
from maskwright.kernels.setting import has_kernels

_PROGRAMS = 264
"""Programs of the backward pass, two for each of 132 multiprocessors: each writes a row of sums."""
_TILE = 4096
"""Elements that a program holds at a time."""
_MULTIPLE = 16
"""Supported widths; four random numbers share a word."""


def is_supported(values: Tensor, norm: nn.LayerNorm) -> bool:
    """Return whether `dropout_add_norm` computes with these values and weights."""
    return (
        has_kernels(values.device)
        and values.dtype == torch.bfloat16
        and norm.weight.dtype == torch.float32
        and norm.bias is not None
        and not values.shape[1] % _MULTIPLE
    )


def dropout_add_norm(values: Tensor, residual: Tensor, norm: nn.LayerNorm, mask: DropoutMask | None) -> Tensor:
    """See `ops.dropout_add_norm`."""
    values, residual = values.contiguous(), residual.to(values.dtype).contiguous()
    result: Tensor
    result, _, _ = _norm(values, residual, norm.weight, norm.bias, norm.eps, *kernel_arguments(mask, values.numel()))
    return result


@torch.library.custom_op("maskwright::dropout_add_norm", mutates_args=())
def _norm(
    values: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    random_rows: Tensor | None,
    random_columns: Tensor | None,
    keep_threshold: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result (T, H), LayerNorm's input (T, H), and each row's mean and 1 / deviation (T, 2)."""
    from maskwright.kernels.cuda import norm_kernels as kernels

    (num_rows, width), drops = values.shape, random_rows is not None
    rows, block = _tile(width)
    result, sums = torch.empty_like(values), torch.empty_like(values)
    statistics = values.new_empty(num_rows, 2, dtype=torch.float32)
    if num_rows:
        with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
            kernels.forward[(-(-num_rows // rows),)](
                values, residual, weight, bias, sums, result, statistics, random_rows if drops else statistics,
                random_columns if drops else statistics, num_rows, width, keep_threshold, scale, epsilon,
                DROPS=drops, ROWS=rows, BLOCK=block, num_warps=4,
            )  # fmt: skip
    return result, sums, statistics


@_norm.register_fake
def _(values: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    statistics = values.new_empty(len(values), 2, dtype=torch.float32)
    return torch.empty_like(values), torch.empty_like(values), statistics


@torch.library.custom_op("maskwright::dropout_add_norm_backward", mutates_args=())
def _norm_backward(
    grad: Tensor,
    sums: Tensor,
    statistics: Tensor,
    weight: Tensor,
    random_rows: Tensor | None,
    random_columns: Tensor | None,
    keep_threshold: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the values and the residual, each (T, H), and of weight and bias (2, H), fp32."""
    from maskwright.kernels.cuda import norm_kernels as kernels

    (num_rows, width), drops = sums.shape, random_rows is not None
    rows, block = _tile(width)
    rows_each = max(1, -(-num_rows // (_PROGRAMS * rows))) * rows
    programs = -(-num_rows // rows_each)
    residual_grad = torch.empty_like(sums)
    values_grad = torch.empty_like(sums) if drops else residual_grad
    partial = sums.new_empty(programs, 2, width, dtype=torch.float32)
    if programs:
        with torch.cuda.device_of(grad):  # type: ignore[no-untyped-call]
            kernels.backward[(programs,)](
                grad.contiguous(), sums, statistics, weight, residual_grad, values_grad, partial,
                random_rows if drops else statistics, random_columns if drops else statistics, num_rows, width,
                keep_threshold, scale, rows_each, DROPS=drops, ROWS=rows, BLOCK=block, num_warps=4,
            )  # fmt: skip
    return values_grad if drops else residual_grad.clone(), residual_grad, partial.sum(0)


@_norm_backward.register_fake
def _(grad: Tensor, sums: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(sums), torch.empty_like(sums), sums.new_empty(2, sums.shape[1], dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *_, weight, _, _, rows, columns, ctx.keep_threshold, ctx.scale = inputs
    ctx.save_for_backward(*output[1:], weight, rows, columns)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    values_grad, residual_grad, parameters = _norm_backward(grad, *ctx.saved_tensors, ctx.keep_threshold, ctx.scale)
    return values_grad, residual_grad, parameters[0], parameters[1], *[None] * 5


_norm.register_autograd(_backward, setup_context=_save)


def _tile(width: int) -> tuple[int, int]:
    # Rows and columns that a program holds.
    block = 1 << (width - 1).bit_length()
    return max(1, _TILE // block), block
