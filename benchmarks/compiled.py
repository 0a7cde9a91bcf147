"""LayerNorm by `torch.compile` from PyTorch's operations, in place of the Triton kernel of LayerNorm (suite `gpu`)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from maskwright.kernels.dropout import _MIX_1, DropoutMask


def dropout_add_norm(values: Tensor, residual: Tensor, norm: nn.LayerNorm, mask: DropoutMask | None) -> Tensor:
    """Replace `kernels.cuda.norm.dropout_add_norm`."""
    residual = residual.to(values.dtype)
    with torch.autocast("cuda", enabled=False):
        if mask is None:
            return _add_norm(values, residual, norm.weight, norm.bias, norm.eps)
        table = mask.random_table(values.numel())
        return _dropout_add_norm(
            values, residual, norm.weight, norm.bias, norm.eps, *table, mask.keep_threshold, mask.scale
        )


@torch.compile(dynamic=True)
def _add_norm(values: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    sums = (values.float() + residual.float()).to(values.dtype)
    return F.layer_norm(sums.float(), weight.shape, weight, bias, epsilon).to(values.dtype)


@torch.compile(dynamic=True)
def _dropout_add_norm(
    values: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    rows: Tensor,
    columns: Tensor,
    keep_threshold: int,
    scale: float,
) -> Tensor:
    numbers = rows[:, None] * columns
    numbers = (numbers ^ (numbers >> 32)) * _MIX_1
    lanes = torch.arange(0, 64, 16, device=values.device)
    bits = (numbers[..., None] >> lanes).to(torch.int16)
    kept = bits.reshape(-1)[: values.numel()].view(values.shape) >= keep_threshold
    sums = (torch.where(kept, values.float() * scale, 0.0) + residual.float()).to(values.dtype)
    return F.layer_norm(sums.float(), weight.shape, weight, bias, epsilon).to(values.dtype)
