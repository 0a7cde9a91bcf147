"""Cross entropy over a tied vocabulary in bf16 on a GPU: three matmuls and two Triton kernels.

Matmuls need aligned memory to be fast: 30,522 rows of weights take 982 us on an H100, 30,528 take 357.
Nothing here waits for the GPU, so a CUDA graph can contain it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

GPU_BLOCK_ELEMENTS = 1 << 28
"""Most scores held at a time: 512 MiB in bf16, 8,793 targets at 30,528 entries. With one block the vocabulary's
gradient is a single matmul, to which nothing is added."""

_VOCABULARY_MULTIPLE = 64
"""The vocabulary is padded to a multiple of this."""
_ROWS = 16
"""Targets are padded to a multiple of this: they are the inner dimension of the vocabulary's gradient."""
_SCORING = {"BLOCK": 2048, "num_warps": 4}
"""A program computes one target's loss from 2,048 columns at a time: 16 per thread, in loads of 16 bytes."""
_GRADIENTS = {"ROWS": 32, "BLOCK": 1024, "num_warps": 4}
"""A program computes the gradients of 32 targets in 1,024 columns: 8 per thread, one load of 16 bytes."""
_SAMPLING = {"BLOCK": 2048, "num_warps": 4}
"""A program samples one target's token from 2,048 columns at a time: 16 per thread."""


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
    entries = _in_bf16(weight, _VOCABULARY_MULTIPLE)
    num_columns = len(entries)
    # Where there is no entry there is no probability.
    offsets = torch.nn.functional.pad(bias.float(), (0, num_columns - num_entries), value=float("-inf"))
    length = _block_length(len(rows), block_elements // num_columns)
    scores = torch.empty(length, num_columns, dtype=torch.bfloat16, device=rows.device)
    features_grads: list[Tensor] = []
    weight_grad: Tensor | None = None
    bias_grad: Tensor | None = None
    for begin in range(0, len(rows), length):
        block, answers = rows[begin : begin + length], labels[begin : begin + length]
        logits = torch.mm(block, entries.T, out=scores[: len(block)])
        losses, is_right, column_sums = _gradients_in_place(logits, offsets, answers, with_gradients=with_gradients)
        total += losses.sum()
        correct += is_right.sum()
        if column_sums is not None:
            features_grads.append(_matmul(logits, entries, features.dtype))
            part, added = _matmul(logits.T, block, torch.float32), column_sums.sum(dim=0)
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
    features: Tensor, weight: Tensor, bias: Tensor, numbers: Tensor, block_elements: int = GPU_BLOCK_ELEMENTS
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

    Returns:
        Shape (M,), int64.
    """
    sampled = torch.empty(len(numbers), dtype=torch.int64, device=numbers.device)
    rows, entries = _in_bf16(features[: len(numbers)], _ROWS), _in_bf16(weight, _VOCABULARY_MULTIPLE)
    offsets = torch.nn.functional.pad(bias.float(), (0, len(entries) - len(weight)), value=float("-inf"))
    length = _block_length(max(1, len(rows)), block_elements // len(entries))
    for begin in range(0, len(numbers), length):
        part = slice(begin, begin + length)
        _sample(_matmul(rows[part], entries.T, torch.float32), offsets, numbers[part], sampled[part])
    return sampled


def _sample(scores: Tensor, bias: Tensor, numbers: Tensor, sampled: Tensor) -> None:
    from maskwright.kernels.cuda.cross_entropy_kernels import sample_rows

    with torch.cuda.device_of(scores):  # type: ignore[no-untyped-call]
        sample_rows[(len(sampled),)](scores, bias, numbers.contiguous(), sampled, scores.shape[1], **_SAMPLING)


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


def _gradients_in_place(
    logits: Tensor, bias: Tensor, labels: Tensor, *, with_gradients: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return losses and whether they are right, both (M,), and the gradients' sums over some rows each (S, V).

    Args:
        logits: Shape (N, V), bf16; gradients are written over them if requested.
        bias: Shape (V,), fp32.
        labels: Shape (M,), M at most N.
        with_gradients: Whether gradients are computed.
    """
    from maskwright.kernels.cuda.cross_entropy_kernels import score_rows, write_gradients

    (num_rows, num_columns), num_targets = logits.shape, len(labels)
    labels = labels.contiguous()
    losses, log_sums = (torch.empty(num_targets, dtype=torch.float32, device=logits.device) for _ in range(2))
    is_right = torch.empty(num_targets, dtype=torch.int32, device=logits.device)
    # Triton launches on the current GPU, which may not be that of the tensors.
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        if num_targets:
            score_rows[(num_targets,)](logits, bias, labels, losses, log_sums, is_right, num_columns, **_SCORING)
        if not with_gradients:
            return losses, is_right, None
        parts = -(-num_rows // _GRADIENTS["ROWS"])
        column_sums = torch.empty(parts, num_columns, dtype=torch.float32, device=logits.device)
        write_gradients[(-(-num_columns // _GRADIENTS["BLOCK"]), parts)](
            logits, bias, labels, log_sums, column_sums, num_targets, num_rows, num_columns, **_GRADIENTS
        )
    return losses, is_right, column_sums


def _matmul(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Multiply bf16 matrices into `dtype` without a separate cast."""
    if left.is_cuda and dtype == torch.float32:
        return torch.mm(left, right, out_dtype=dtype)
    # Tests on a CPU, whose matmul has the precision of its inputs.
    return (left @ right).to(dtype) if left.is_cuda else (left.float() @ right.float()).to(dtype)
