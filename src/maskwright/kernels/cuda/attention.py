"""Attention over packed sequences on a GPU in bf16: a Triton kernel for short ones, FlashAttention-2 for longer ones.

Dao (2023), "FlashAttention-2", by PyTorch's operators, which take sequences of any length and dropout.

T tokens, B sequences, N heads, D head size, H = N D.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.kernels.dropout import DropoutMask, kernel_arguments
from maskwright.kernels.sequences import Sequences
from maskwright.kernels.setting import has_kernels

LONGEST = 128
"""Tokens of the longest sequence that the Triton kernels compute."""
_HEAD_SIZES = (16, 32, 64, 128)
_LARGEST_HEAD = 192
"""FlashAttention takes multiples of 8 up to 256; above 192 its backward pass does not run on every GPU."""


def is_supported(query: Tensor, num_heads: int) -> bool:
    """Return whether `attention` computes in the precision of these queries, or of autocast."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    head_size, has_precision = query.shape[1] // num_heads, dtype == torch.bfloat16 and query.dtype != torch.float64
    return has_precision and not head_size % 8 and head_size <= _LARGEST_HEAD and has_kernels(query.device)


def is_short(max_seqlen: int, head_size: int) -> bool:
    """Return whether the Triton kernels compute sequences of at most this length; else FlashAttention does.

    FlashAttention's dropout is seeded from the host, so CUDA graphs cannot contain it.
    """
    return max_seqlen <= LONGEST and head_size in _HEAD_SIZES


def is_capturable(max_seqlen: int, head_size: int, dropout: float) -> bool:
    """Return whether CUDA graphs can contain attention that drops this share of the probabilities."""
    flash = dropout == 0 and not head_size % 8 and head_size <= _LARGEST_HEAD
    return flash or is_short(max_seqlen, head_size)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    num_heads: int,
    mask: DropoutMask | None,
    window: int | None = None,
) -> Tensor:
    """See `ops.attention`."""
    query, key, value = (tensor.to(torch.bfloat16).contiguous() for tensor in (query, key, value))
    if not is_short(sequences.max_seqlen, query.shape[1] // num_heads):
        flash: Tensor = _Flash.apply(query, key, value, sequences, num_heads, mask, window)  # type: ignore[no-untyped-call]
        return flash
    stride = mask_stride(sequences.max_seqlen)
    dropout = kernel_arguments(mask, len(sequences) * num_heads * stride**2)
    context: Tensor
    context, _ = _short_attention(
        query, key, value, sequences.cu_seqlens, num_heads, sequences.max_seqlen, *dropout, window or 0
    )
    return context


def mask_stride(longest: int) -> int:
    """Return the side of a sequence's dropout mask: a power of two of at least 4, so that each row starts at a
    64-bit random number (`DropoutMask`)."""
    return max(4, 1 << max(0, longest - 1).bit_length())


@torch.library.custom_op("maskwright::short_attention", mutates_args=())
def _short_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    num_heads: int,
    max_seqlen: int,
    random_rows: Tensor | None,
    random_columns: Tensor | None,
    keep_threshold: int,
    scale: float,
    window: int,
) -> tuple[Tensor, Tensor]:
    """Return the context (T, H) and the log-sum-exp of each head's and query's scores (N, T), to the base 2."""
    from maskwright.kernels.cuda import attention_kernels as kernels

    context = torch.empty_like(query)
    logsumexp = query.new_empty(num_heads, len(query), dtype=torch.float32)
    head_size, drops = query.shape[1] // num_heads, random_rows is not None
    programs = (len(cu_seqlens) - 1) * num_heads
    if programs:
        with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
            kernels.forward[(programs,)](
                query, key, value, context, logsumexp, cu_seqlens, random_rows if drops else logsumexp,
                random_columns if drops else logsumexp, len(query), num_heads, mask_stride(max_seqlen),
                keep_threshold, 0, scale, D=head_size, LONGEST=_largest_tile(max_seqlen), DROPS=drops, WINDOW=window,
                num_warps=8 if head_size == 128 else 4, num_stages=1, maxnreg=_registers(head_size),
            )  # fmt: skip
    return context, logsumexp


@_short_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, num_heads: int, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(num_heads, len(query), dtype=torch.float32)


@torch.library.custom_op("maskwright::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: Tensor,
    logsumexp: Tensor,
    cu_seqlens: Tensor,
    num_heads: int,
    max_seqlen: int,
    random_rows: Tensor | None,
    random_columns: Tensor | None,
    keep_threshold: int,
    scale: float,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from maskwright.kernels.cuda import attention_kernels as kernels

    query_grad, key_grad, value_grad = (torch.empty_like(query) for _ in range(3))
    head_size, drops, largest = query.shape[1] // num_heads, random_rows is not None, _largest_tile(max_seqlen)
    programs = (len(cu_seqlens) - 1) * num_heads
    if programs:
        with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]
            kernels.backward[(programs,)](
                grad.contiguous(), query, key, value, context, logsumexp, query_grad, key_grad, value_grad, cu_seqlens,
                random_rows if drops else logsumexp, random_columns if drops else logsumexp, len(query), num_heads,
                mask_stride(max_seqlen), keep_threshold, 0, scale, D=head_size, LONGEST=largest,
                BW=16 if head_size == 128 else 32, DROPS=drops, WINDOW=window, STAGES=4,
                num_warps=4 if largest == 64 and head_size <= 64 else 8, num_stages=1, maxnreg=_registers(head_size),
            )  # fmt: skip
    return query_grad, key_grad, value_grad


@_short_attention_backward.register_fake
def _(grad: Tensor, query: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(query), torch.empty_like(query)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens, ctx.num_heads, ctx.max_seqlen, rows, columns, *ctx.numbers = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens, rows, columns)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, rows, columns = ctx.saved_tensors
    grads = _short_attention_backward(grad, *tensors, ctx.num_heads, ctx.max_seqlen, rows, columns, *ctx.numbers)
    return (*grads, *[None] * 8)


_short_attention.register_autograd(_backward, setup_context=_save)


def _largest_tile(max_seqlen: int) -> int:
    return 64 if max_seqlen <= 64 else 128


def _registers(head_size: int) -> int:
    # With half of the 255 that a thread may have, twice as many programs share a multiprocessor, and little is spilled.
    return 128 if head_size <= 64 else 255


class _Flash(torch.autograd.Function):
    """FlashAttention-2, which generates its own dropout masks, seeded by the key."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sequences: Sequences,
        num_heads: int,
        mask: DropoutMask | None,
        window: int | None,
    ) -> Tensor:
        heads = [tensor.view(len(tensor), num_heads, -1) for tensor in (query, key, value)]
        bounds, longest, rate = sequences.cu_seqlens, sequences.max_seqlen, 0.0 if mask is None else mask.rate
        scale = 1 / math.sqrt(heads[0].shape[2])
        device = query.device
        with torch.cuda.device(device), torch.random.fork_rng(devices=[device], enabled=mask is not None):
            if mask is not None:
                torch.cuda.manual_seed(mask.seed)
            context, logsumexp, *state = torch.ops.aten._flash_attention_forward(
                *heads, bounds, bounds, longest, longest, rate, False, False, scale=scale, window_size_left=window,
                window_size_right=window,
            )  # fmt: skip
        ctx.save_for_backward(*heads, context, logsumexp, bounds, *state[:2])
        ctx.arguments = longest, rate, scale, window
        flat: Tensor = context.reshape(query.shape)
        return flat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, context, logsumexp, bounds, seed, offset = ctx.saved_tensors
        longest, rate, scale, window = ctx.arguments
        gradients = torch.ops.aten._flash_attention_backward(
            grads[0].reshape(query.shape), query, key, value, context, logsumexp, bounds, bounds, longest, longest,
            rate, False, seed, offset, scale=scale, window_size_left=window, window_size_right=window,
        )  # fmt: skip
        return (*(each.flatten(1) for each in gradients[:3]), None, None, None, None)
