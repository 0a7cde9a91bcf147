"""Cross entropy over a tied vocabulary, a block of logits at a time, and what other losses over it share.

The plain computation holds all logits three or four times. Here one block of targets is computed, and its gradient
written over it, before the next; the backward pass only scales the gradients.

M targets, R of them in a block, V vocabulary entries, E width of the features.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from maskwright.kernels.cuda.cross_entropy import GPU_BLOCK_ELEMENTS, gpu_samples, gpu_scores
from maskwright.kernels.setting import has_kernels, kernels_enabled

BLOCK_ELEMENTS = 1 << 25
"""Logits per block: 128 MiB in fp32, 1099 targets at 30522 entries."""
_ARGMAX_BLOCK = 128
"""Columns in a block of `max_with_index`: of 64 to 512 the fastest at 8,192 entries, within 2 % of it at 30,522."""

Computed = tuple[Tensor, Tensor, tuple[Tensor, ...] | None]
"""Summed loss, number of correct predictions, and gradients: of features, weight, bias and other inputs."""


class Scores(NamedTuple):
    """Summed cross entropy in nats, number of correct predictions, and a token sampled from each distribution.

    Shapes () in fp32 or finer, differentiable once, and backward runs once; () in int64; (M,) in int64, None without
    `sampling`.
    """

    total: Tensor
    correct: Tensor
    sampled: Tensor | None


class LogitParts(NamedTuple):
    """The parts of logits over the vocabulary: `features @ weight.T + bias`. Shapes (M, E), (V, E), (V,)."""

    features: Tensor
    weight: Tensor
    bias: Tensor


def summed_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    block_elements: int | None = None,
    sampling: Tensor | None = None,
) -> Scores:
    """Return the summed cross entropy of `features @ weight.T + bias` and the number of correct predictions.

    Equals `cross_entropy(linear(features, weight, bias).float(), labels, reduction="sum")`. Under bf16 autocast on a
    GPU, compiled functions compute the gradients (`cuda.cross_entropy`).

    Args:
        features, weight, bias: Shapes (M, E), (V, E), (V,); M may be 0.
        labels: Shape (M,), int64, in [0, V).
        block_elements: Logits per block; None for `BLOCK_ELEMENTS`, or `GPU_BLOCK_ELEMENTS` with those.
        sampling: Shape (M,), uniform numbers in [0, 1): samples by inverting the cumulative distribution over ids. One
            number per token gives the same distribution as Gumbel noise per logit. Under autocast the loss uses rounded
            logits, but tokens are sampled from logits recomputed in fp32 (a second block; on a GPU fp32 sums of bf16
            inputs): bf16 logits from 8 on are multiples of 1/16. A number at the border of two tokens may give
            either, depending on the kernel, and on CUDA in fp32 on the run: `cumsum` is not deterministic there
            (`torch.use_deterministic_algorithms`).
    """
    parts, with_gradients = LogitParts(features, weight, bias), torch.is_grad_enabled()
    dtype = matmul_dtype(weight)
    with torch.autocast(features.device.type, enabled=False):
        if dtype == torch.bfloat16 and kernels_enabled() and has_kernels(features.device):
            # The weight is rounded inside, so that its gradient is computed in the weight's own precision.
            most = block_elements or GPU_BLOCK_ELEMENTS
            total, correct = apply_loss(
                parts, lambda leaves: gpu_scores(*leaves, labels, most, with_gradients=with_gradients)
            )
            if sampling is None:
                return Scores(total, correct, None)
            return Scores(total, correct, gpu_samples(*parts, sampling, most, is_training=with_gradients))
        exact = exact_dtype(dtype)
        sampled = None if sampling is None else torch.empty_like(labels)

        def block_loss(block: slice, rounded: LogitParts) -> tuple[Tensor, Tensor, Tensor]:
            answers = labels[block, None]
            if dtype == exact:  # A fifth faster than `linear`, which copies the bias to each row first.
                logits = torch.mm(rounded.features, rounded.weight.t()).add_(rounded.bias)
            else:
                logits = F.linear(*rounded).to(exact)
            best, predicted = max_with_index(logits)
            of_answers = logits.gather(1, answers) - best
            # One pass row by row, in the cache; the highest probability is 1 / (sum of the exponentials).
            probabilities = torch.softmax(logits, 1, out=logits)
            loss = -(probabilities.gather(1, predicted).log() + of_answers).sum()
            if sampling is not None and sampled is not None:
                shares = probabilities
                if dtype != exact:
                    shares = F.linear(features[block].to(exact), weight.to(exact), bias.to(exact))
                    shares = shares.sub_(shares.amax(dim=1, keepdim=True)).exp_()
                sampled[block] = _sample(shares, sampling[block, None])
            if with_gradients:  # d loss / d logits = softmax - one hot.
                probabilities.scatter_add_(1, answers, torch.full_like(best, -1.0))
            return loss, (predicted == answers).sum(), probabilities

        length = max(1, (block_elements or BLOCK_ELEMENTS) // len(weight))
        total, correct = apply_loss(
            LogitParts(*(part.to(dtype) for part in parts)),
            lambda leaves: loss_in_blocks(leaves, length, block_loss, with_gradients=with_gradients),
        )
    return Scores(total, correct, sampled)


def loss_in_blocks(
    parts: LogitParts,
    length: int,
    block_loss: Callable[[slice, LogitParts], tuple[Tensor, Tensor, Tensor]],
    *,
    with_gradients: bool,
) -> Computed:
    """Compute a loss in blocks of `length` targets, and its gradients in the precision of the parts, the matmuls'.

    `block_loss` gets the targets of a block and the parts of its logits, and returns its loss, the number of correct
    predictions, and the gradient of the logits (R, V) in fp32 or fp64.
    """
    features, weight, bias = parts
    exact = exact_dtype(weight.dtype)  # Of all sums.
    total, correct = weight.new_zeros((), dtype=exact), torch.zeros((), dtype=torch.int64, device=weight.device)
    features_grad, bias_grad = torch.empty_like(features), torch.zeros_like(bias, dtype=exact)
    weight_grad: Tensor | None = None
    for begin in range(0, len(features), length):
        block = slice(begin, begin + length)
        loss, right, grad = block_loss(block, LogitParts(features[block], weight, bias))
        total += loss
        correct += right
        if with_gradients:
            bias_grad += grad.sum(dim=0)
            grad = grad.to(weight.dtype)
            features_grad[block] = grad @ weight
            block_grad = grad.T @ features[block]
            weight_grad = block_grad if weight_grad is None else weight_grad.to(exact).add_(block_grad)
            del block_grad
        del grad  # Before the next block is computed.
    if not with_gradients:
        return total, correct, None
    weight_grad = torch.zeros_like(weight) if weight_grad is None else weight_grad.to(weight.dtype)
    return total, correct, (features_grad, weight_grad, bias_grad.to(bias.dtype))


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of sums and distributions: fp32, or fp64 for fp64 inputs."""
    return torch.promote_types(dtype, torch.float32)


def max_with_index(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return `logits.max(dim=1, keepdim=True)` of logits (R, V): values and first indices, each of shape (R, 1).

    On a CPU, PyTorch's `max` with indices is not vectorized, but `amax` is. So `amax` finds the best block of columns
    first: 0.42 ms instead of 2.07 for 288 rows of 8,192 logits, on one thread.
    """
    whole = logits.shape[1] // _ARGMAX_BLOCK * _ARGMAX_BLOCK
    if not whole:
        best, indices = logits.max(dim=1, keepdim=True)
        return best, indices
    blocks = logits[:, :whole].view(len(logits), whole // _ARGMAX_BLOCK, _ARGMAX_BLOCK)
    best, block = blocks.amax(dim=2).max(dim=1, keepdim=True)
    chosen = blocks.gather(1, block[..., None].expand(-1, -1, _ARGMAX_BLOCK)).squeeze(1)
    indices = block * _ARGMAX_BLOCK + chosen.argmax(dim=1, keepdim=True)
    if whole < logits.shape[1]:
        rest, rest_indices = logits[:, whole:].max(dim=1, keepdim=True)
        indices = torch.where(rest > best, rest_indices + whole, indices)
        best = torch.maximum(best, rest)
    return best, indices


def matmul_dtype(weight: Tensor) -> torch.dtype:
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _sample(shares: Tensor, numbers: Tensor) -> Tensor:
    """Return the ids (R,) at which the running sums of unnormalized probabilities (R, V) pass the numbers (R, 1)."""
    running = shares.cumsum(dim=1)
    total = running[:, -1:].contiguous()
    wanted = total * numbers.to(shares.dtype)
    # Rounding must not move a number near 1 beyond the last token with nonzero probability.
    wanted = torch.minimum(wanted, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(running, wanted, right=True).squeeze(1)


def apply_loss(parts: LogitParts, compute: Callable[[LogitParts], Computed], *others: Tensor) -> tuple[Tensor, Tensor]:
    total, correct = _LossWithGradients.apply(compute, *parts, *others)  # type: ignore[no-untyped-call]
    return total, correct


class _LossWithGradients(torch.autograd.Function):
    """A loss whose gradients are computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[[LogitParts], Computed],
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        *others: Tensor,
    ) -> tuple[Tensor, Tensor]:
        total, correct, gradients = compute(LogitParts(features, weight, bias))
        if gradients is not None:
            ctx.save_for_backward(*gradients)
            ctx.is_spent = False
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.is_spent:
            raise RuntimeError(
                "the gradients of this loss were scaled in place by the first backward pass: compute the loss again"
            )
        ctx.is_spent = True
        # The gradient of the vocabulary matrix is as large as the matrix, and memory peaks here: nothing is copied.
        return None, *(gradient.mul_(grads[0]) for gradient in ctx.saved_tensors)
