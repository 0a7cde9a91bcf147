"""Cross entropy over a tied vocabulary in bf16 on a GPU: three matmuls and what `torch.compile` makes of the rest.

Matmuls need aligned memory to be fast: 30,522 rows of weights take 982 us on an H100, 30,528 take 357.
Nothing here waits for the GPU.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maskwright.core.storage.files import cache_folder

GPU_BLOCK_ELEMENTS = 1 << 28
"""Most scores held at a time: 512 MiB in bf16, 8,793 targets at 30,528 entries. With one block the vocabulary's
gradient is a single matmul, to which nothing is added."""
_FP32_SHARE = 8
"""Factor by which blocks shrink where fp32 copies are held: in sampling, and without gradients."""

_VOCABULARY_MULTIPLE = 64
"""The vocabulary is padded to a multiple of this."""
_ROWS = 16
"""Targets are padded to a multiple of this: they are the inner dimension of the vocabulary's gradient."""
_PART = _VOCABULARY_MULTIPLE
"""Sampling first chooses so many neighboring columns, then one of them."""


class GpuScores(NamedTuple):
    """Results of one pass over the vocabulary.

    Attributes:
        total: Summed cross entropy in nats (scalar, fp32).
        correct: Number of right predictions; of equal scores the first counts as the best (scalar, int64).
        gradients: Gradients of the total with respect to features, weight and bias, in their shapes and precisions;
            None if not requested.
    """

    total: Tensor
    correct: Tensor
    gradients: tuple[Tensor, Tensor, Tensor] | None


@torch.no_grad()
def gpu_scores(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    block_elements: int = GPU_BLOCK_ELEMENTS,
    *,
    with_gradients: bool,
) -> GpuScores:
    """Score `features @ weight.T + bias` against labels, matmuls in bf16; bias, exponentials and sums in fp32.

    Args:
        features: Shape (M', E). Rows behind those of the labels count for nothing: their gradient is 0.
        weight: Shape (V, E).
        bias: Shape (V,).
        labels: Shape (M,), int64, in [0, V); M may be 0.
        block_elements: Most scores held at a time.
        with_gradients: Whether gradients are computed.
    """
    num_entries = len(weight)
    total = torch.zeros((), dtype=torch.float32, device=features.device)
    correct = torch.zeros((), dtype=torch.int64, device=features.device)
    if not len(labels):
        zeros = torch.zeros_like(features), torch.zeros_like(weight), torch.zeros_like(bias)
        return GpuScores(total, correct, zeros if with_gradients else None)
    rows = _in_bf16(features, _ROWS)
    # Of one size with the rows, so that a block is compiled once: padding has label 0 and counts for nothing.
    counts = torch.arange(len(rows), device=rows.device) < len(labels)
    labels = torch.nn.functional.pad(labels, (0, len(rows) - len(labels)))
    losses_of: Callable[..., tuple[Tensor, Tensor, Tensor]] = _compiled(_losses, rows) if with_gradients else _losses
    entries = _in_bf16(weight, _VOCABULARY_MULTIPLE)
    num_columns = len(entries)
    # Where there is no entry there is no probability.
    offsets = torch.nn.functional.pad(bias.float(), (0, num_columns - num_entries), value=float("-inf"))
    if not with_gradients:
        block_elements //= _FP32_SHARE
    length = _block_length(len(rows), block_elements // num_columns)
    scores = torch.empty(length, num_columns, dtype=torch.bfloat16, device=rows.device)
    features_grads: list[Tensor] = []
    weight_grad: Tensor | None = None
    bias_grad: Tensor | None = None
    for begin in range(0, len(rows), length):
        block = rows[begin : begin + length]
        # Copies: views of another offset would be compiled again.
        answers, counted = (each[begin : begin + length].clone() for each in (labels, counts))
        logits = torch.mm(block, entries.T, out=scores[: len(block)])
        loss, right, log_sums = losses_of(logits, offsets, answers, counted)
        total += loss
        correct += right
        if with_gradients:
            added = _compiled(_gradients_in_place, rows)(logits, offsets, answers, counted, log_sums)
            features_grads.append(_matmul(logits, entries, features.dtype))
            part = _matmul(logits.T, block, torch.float32)
            weight_grad = part if weight_grad is None else weight_grad.add_(part)
            bias_grad = added if bias_grad is None else bias_grad.add_(added)
    if weight_grad is None or bias_grad is None:
        return GpuScores(total, correct, None)
    rows_grad = features_grads[0] if len(features_grads) == 1 else torch.cat(features_grads)
    # The first rows of a contiguous matrix are contiguous: nothing is copied.
    gradients = (
        rows_grad[: len(features)],
        weight_grad[:num_entries].to(weight.dtype),
        bias_grad[:num_entries].to(bias.dtype),
    )
    return GpuScores(total, correct, gradients)


@torch.no_grad()
def gpu_samples(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    numbers: Tensor,
    block_elements: int = GPU_BLOCK_ELEMENTS,
    *,
    is_training: bool,
) -> Tensor:
    """Sample a token for each target from the softmax of `features @ weight.T + bias`.

    Inputs are bf16 and matmul results fp32: scores are not rounded to the few numbers that bf16 has from 8 on.

    Args:
        features: Shape (M', E), M' at least M.
        weight: Shape (V, E).
        bias: Shape (V,).
        numbers: Shape (M,), uniform in [0, 1): the token at which the summed probabilities, in the order of ids, pass
            the number.
        block_elements: Most scores held at a time.
        is_training: In evaluation nothing is compiled.

    Returns:
        Shape (M,), int64.
    """
    count = len(numbers)
    rows, entries = _in_bf16(features[:count], _ROWS), _in_bf16(weight, _VOCABULARY_MULTIPLE)
    numbers = torch.nn.functional.pad(numbers, (0, len(rows) - count))
    sampled = torch.empty(len(rows), dtype=torch.int64, device=numbers.device)
    offsets = torch.nn.functional.pad(bias.float(), (0, len(entries) - len(weight)), value=float("-inf"))
    sample: Callable[..., Tensor] = _compiled(_samples, rows) if is_training else _samples
    length = _block_length(max(1, len(rows)), block_elements // _FP32_SHARE // len(entries))
    for begin in range(0, len(rows), length):
        part = slice(begin, begin + length)
        scores = _matmul(rows[part], entries.T, torch.float32)
        sampled[part] = sample(scores, offsets, numbers[part].clone())
    return sampled[:count]


def _in_bf16(matrix: Tensor, multiple: int) -> Tensor:
    """Return a contiguous matrix in bf16, with rows of zeros behind it that make their number a multiple."""
    count = len(matrix)
    padded = -(-count // multiple) * multiple
    if padded == count:
        return matrix.to(torch.bfloat16).contiguous()
    copy = torch.empty(padded, matrix.shape[1], dtype=torch.bfloat16, device=matrix.device)
    copy[:count] = matrix
    copy[count:] = 0
    return copy


def _block_length(num_rows: int, most: int) -> int:
    """Return the rows of a block: a multiple of `_ROWS`, at most `most` where that is as many, blocks of one size."""
    most = max(_ROWS, most // _ROWS * _ROWS)
    blocks = -(-num_rows // most)
    return -(-num_rows // (blocks * _ROWS)) * _ROWS


@functools.cache
def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    # PyTorch's default is a folder in /tmp whose name every user can predict.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "torchinductor"))
    return torch.compile(function, dynamic=True)


def _compiled(function: Callable[..., Any], tensor: Tensor) -> Callable[..., Any]:
    # Tests on a CPU run the functions uncompiled.
    return _on_gpu(function) if tensor.is_cuda else function


def _losses(logits: Tensor, bias: Tensor, labels: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the summed loss and right predictions of the rows that count, and the log-sum-exps of all, (N,).

    The first of equal logits is the prediction. Shapes (N, V), bf16; (V,), fp32; (N,); (N,), bool.
    """
    exact = logits.float() + bias
    log_sums = exact.logsumexp(1)
    losses = log_sums - exact.gather(1, labels[:, None]).squeeze(1)
    return torch.where(counted, losses, 0.0).sum(), ((exact.argmax(1) == labels) & counted).sum(), log_sums


def _gradients_in_place(logits: Tensor, bias: Tensor, labels: Tensor, counted: Tensor, log_sums: Tensor) -> Tensor:
    """Write softmax minus one hot over the logits, 0 where a row does not count, and return its sums over the rows
    before rounding, (V,)."""
    one_hot = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    gradients = (logits.float() + bias - log_sums[:, None]).exp() - one_hot.float()
    gradients = torch.where(counted[:, None], gradients, 0.0)
    sums = gradients.sum(0)
    logits.copy_(gradients)
    return sums


def _samples(scores: Tensor, bias: Tensor, numbers: Tensor) -> Tensor:
    """Return the columns (M,) at which the running sums of `softmax(scores + bias)` (M, V) pass the numbers (M,)."""
    exact = scores + bias
    shares = (exact - exact.amax(1, keepdim=True)).exp().view(len(scores), -1, _PART)
    sums = shares.sum(2).cumsum(1)
    # Below 1 by more than rounding: the sums of some part pass it.
    wanted = sums[:, -1:] * numbers[:, None].clamp(max=1 - 2**-23)
    part = (sums <= wanted).sum(1, keepdim=True)
    before = torch.where(part > 0, sums.gather(1, (part - 1).clamp(min=0)), 0.0)
    part_shares = shares.gather(1, part[..., None].expand(-1, -1, _PART)).squeeze(1)
    column = (before + part_shares.cumsum(1) <= wanted).sum(1)
    # The part's own sum may be rounded differently from the running one.
    last = (torch.arange(_PART, device=part_shares.device) * (part_shares > 0)).amax(1)
    return part.squeeze(1) * _PART + torch.minimum(column, last)


def _matmul(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply bf16 matrices into `dtype` without a separate cast."""
    if left.is_cuda and dtype == torch.float32:
        return torch.mm(left, right, out_dtype=dtype)
    # Tests on a CPU, whose matmul has the precision of its inputs.
    return (left @ right).to(dtype) if left.is_cuda else (left.float() @ right.float()).to(dtype)
