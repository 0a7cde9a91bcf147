"""Cross entropy with a tied vocabulary that never holds more than one block of logits.

M targets, R of them in a block, V vocabulary entries, E width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.kernels.cuda.cross_entropy import GPU_BLOCK_ELEMENTS, gpu_samples, gpu_scores
from maskwright.kernels.setting import has_kernels, kernels_enabled

BLOCK_ELEMENTS = 1 << 25
"""Logits per block: 128 MiB in fp32, 1099 targets at 30522 entries."""
_ARGMAX_BLOCK = 128
"""Columns in a block of `max_with_index`: of 64 to 512 the fastest at 8,192 entries, within 2 % of it at 30,522."""


class Scores(NamedTuple):
    """Result of one pass over the vocabulary.

    Attributes:
        total: Summed cross entropy in nats (scalar, fp32 or finer; differentiable once, and backward runs once).
        correct: Number of correct predictions (scalar, int64).
        sampled: Shape (M,), int64, a token sampled from each predicted distribution; None without `sampling`.
    """

    total: Tensor
    correct: Tensor
    sampled: Tensor | None


def summed_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    block_elements: int | None = None,
    sampling: Tensor | None = None,
) -> Scores:
    """Return the summed cross entropy of `features @ weight.T + bias` and the number of correct predictions.

    Equals `cross_entropy(linear(features, weight, bias).float(), labels, reduction="sum")`. Logits are computed in
    blocks of targets and overwritten by their gradient, so that at most one block exists at a time; the plain
    computation holds all of them three or four times. Under bf16 autocast on a GPU the blocks are larger, and Triton
    kernels compute the gradients (`cuda.cross_entropy`).

    Args:
        features: Shape (M, E); M may be 0. Rows beyond the labels are ignored: their gradient is 0.
        weight: Shape (V, E).
        bias: Shape (V,).
        labels: Shape (M,), int64, in [0, V).
        block_elements: Logits per block; None for `BLOCK_ELEMENTS`, or `GPU_BLOCK_ELEMENTS` with Triton kernels.
        sampling: Shape (M,), uniform numbers in [0, 1): samples by inverting the cumulative distribution over ids. One
            number per token gives the same distribution as Gumbel noise per logit. Under autocast the loss uses rounded
            logits, but tokens are sampled from logits recomputed in fp32 (a second block; on a GPU fp32 sums of bf16
            inputs): bf16 logits from 8 on are multiples of 1/16. A number at the border of two tokens may give
            either, depending on the kernel, and on CUDA in fp32 on the run: `cumsum` is not deterministic there
            (`torch.use_deterministic_algorithms`).
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    exact = exact_dtype(dtype)
    with torch.autocast(device, enabled=False):
        if dtype == torch.bfloat16 and kernels_enabled() and has_kernels(features.device):
            most = block_elements or GPU_BLOCK_ELEMENTS
            total, correct = _SummedOnGpu.apply(  # type: ignore[no-untyped-call]
                features, weight, bias, labels, most, torch.is_grad_enabled()
            )
            sampled = None if sampling is None else gpu_samples(features, weight, bias, sampling, most)
            return Scores(total, correct, sampled)
        rows = max(1, (block_elements or BLOCK_ELEMENTS) // len(weight))
        sampler = None
        if sampling is not None:
            unrounded = None if dtype == exact else (features.to(exact), weight.to(exact), bias.to(exact))
            sampler = _Sampler(sampling, unrounded)
        features, weight, bias = features.to(dtype), weight.to(dtype), bias.to(dtype)
        total, correct, sampled = _SummedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            features, weight, bias, labels, rows, torch.is_grad_enabled(), sampler
        )
    return Scores(total, correct, sampled if sampling is not None else None)


class _Sampler(NamedTuple):
    """Samples tokens from the predicted distributions.

    Attributes:
        numbers: Shape (M,), uniform in [0, 1).
        unrounded: Features, weight and bias in fp32; None if the scored logits are not rounded.
    """

    numbers: Tensor
    unrounded: tuple[Tensor, Tensor, Tensor] | None

    def sample(self, part: slice, exponentials: Tensor) -> Tensor:
        """Return the sampled ids of the targets of one block.

        Args:
            part: The R targets.
            exponentials: Their unnormalized probabilities. Shape (R, V).
        """
        numbers = self.numbers[part, None]
        if self.unrounded is not None:
            features, weight, bias = self.unrounded
            # The features may have padding rows behind the targets.
            logits = torch.nn.functional.linear(features[part], weight, bias)[: len(numbers)]
            exponentials = logits.sub_(logits.amax(dim=1, keepdim=True)).exp_()
        running = exponentials.cumsum(dim=1)
        total = running[:, -1:].contiguous()
        wanted = total * numbers.to(exponentials.dtype)
        # Rounding must not move a number near 1 beyond the last token with nonzero probability.
        wanted = torch.minimum(wanted, torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(running, wanted, right=True).squeeze(1)


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        rows: int,
        with_gradients: bool,
        sampler: _Sampler | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Sums are in fp32 (or fp64) whatever the precision of the matmuls.
        exact = exact_dtype(weight.dtype)
        total, correct = weight.new_zeros((), dtype=exact), labels.new_zeros(())
        bias_grad = bias.new_zeros(bias.shape if with_gradients else 0, dtype=exact)
        sampled = labels.new_zeros(len(labels) if sampler is not None else 0)

        def logits_grad(part: slice, block: Tensor) -> Tensor | None:
            answers = labels[part, None]
            if weight.dtype == exact:  # A fifth faster than `linear`, which copies the bias to each row first.
                padded = torch.mm(block, weight.t()).add_(bias)
            else:
                padded = torch.nn.functional.linear(block, weight, bias).to(exact)
            logits = padded[: len(answers)]
            best, guesses = max_with_index(logits)
            correct.add_((guesses == answers).sum())
            of_answers = logits.gather(1, answers) - best
            # One pass row by row, in the cache; the highest probability is 1 / (sum of the exponentials).
            probabilities = torch.softmax(logits, 1, out=logits)
            total.sub_((probabilities.gather(1, guesses).log() + of_answers).sum())
            if sampler is not None:
                sampled[part] = sampler.sample(part, probabilities)
            if not with_gradients:
                return None
            # d loss / d logits = softmax - one hot, written over the logits.
            grad = probabilities.scatter_add_(1, answers, torch.full_like(best, -1.0))
            bias_grad.add_(grad.sum(dim=0))
            padded[len(answers) :] = 0
            return padded.to(weight.dtype)

        features_grad, weight_grad = in_blocks(features, weight, len(labels), rows, logits_grad)
        if with_gradients:
            save_gradients(ctx, features_grad, cast_weight_grad(weight_grad, weight), bias_grad.to(bias.dtype))
        ctx.mark_non_differentiable(correct, sampled)
        return total, correct, sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scale_in_place(ctx, grad), None, None, None, None


class _SummedOnGpu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        block_elements: int,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        # The weight is rounded inside, so that its gradient is computed in the weight's own precision.
        scored = gpu_scores(features, weight, bias, labels, block_elements, with_gradients=with_gradients)
        if scored.gradients is not None:
            save_gradients(ctx, *scored.gradients)
        ctx.mark_non_differentiable(scored.correct)
        return scored.total, scored.correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scale_in_place(ctx, grad), None, None, None


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of sums and distributions: fp32, or fp64 for fp64 inputs."""
    return torch.promote_types(dtype, torch.float32)


def in_blocks(
    features: Tensor, weight: Tensor, count: int, rows: int, logits_grad: Callable[[slice, Tensor], Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Compute a loss block by block, and return the gradients of the features and of the weight.

    Args:
        features: In the precision of the matmuls. Shape (M, E), or more rows, which are ignored.
        weight: In the same. Shape (V, E).
        count: M.
        rows: R.
        logits_grad: Computes one block's loss. Gets the block's targets and features (the last block's perhaps with
            padding rows); returns the gradients of the logits in the precision of the matmuls, shape (rows given, V),
            or None without gradients.

    Returns:
        The gradients of the features, in their shape and precision (undefined without gradients), and of the weight,
        for `cast_weight_grad`.
    """
    features_grad = torch.empty_like(features)
    weight_grad: Tensor | None = None
    for begin in range(0, count, rows):
        part = slice(begin, begin + rows)
        block = features[part]
        grad = logits_grad(part, block)
        if grad is not None:
            features_grad[part] = grad @ weight
            block_grad = grad.T @ block
            # Summed in fp32 from the second block on.
            if weight_grad is None:
                weight_grad = block_grad
            else:
                weight_grad = weight_grad.to(exact_dtype(weight.dtype)).add_(block_grad)
            del grad, block_grad  # Free them before the next block.
    features_grad[-(-count // rows) * rows :] = 0  # Blocks of padding rows.
    return features_grad, weight_grad


def cast_weight_grad(total: Tensor | None, weight: Tensor) -> Tensor:
    """Return the weight's gradient from `in_blocks` in the weight's precision; zeros if there was no block."""
    return torch.zeros_like(weight) if total is None else total.to(weight.dtype)


def save_gradients(ctx: Any, *gradients: Tensor) -> None:
    """Save gradients that were computed in the forward pass, for one backward pass."""
    ctx.save_for_backward(*gradients)
    ctx.is_spent = False


def take_gradients(ctx: Any) -> tuple[Tensor, ...]:
    """Return the gradients that `save_gradients` saved, which may be overwritten; a second call raises an error."""
    if ctx.is_spent:
        raise RuntimeError(
            "the gradients of this loss were scaled in place by the first backward pass: compute the loss again"
        )
    ctx.is_spent = True
    kept: tuple[Tensor, ...] = ctx.saved_tensors
    return kept


def scale_in_place(ctx: Any, grad: Tensor) -> list[Tensor]:
    """Return the gradients that `save_gradients` saved times the gradient of the loss, scaled in place.

    The gradient of the vocabulary matrix is as large as the matrix, and memory peaks here, so there is no copy.
    """
    return [gradient.mul_(grad) for gradient in take_gradients(ctx)]


def max_with_index(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return `scores.max(dim=1, keepdim=True)` of scores (R, V): values and first indices, each of shape (R, 1).

    On a CPU, PyTorch's `max` with indices is not vectorized, but `amax` is. So `amax` finds the best block of columns
    first: 0.42 ms instead of 2.07 for 288 rows of 8,192 scores, on one thread.
    """
    whole = scores.shape[1] // _ARGMAX_BLOCK * _ARGMAX_BLOCK
    if not whole:
        best, places = scores.max(dim=1, keepdim=True)
        return best, places
    blocks = scores[:, :whole].view(len(scores), whole // _ARGMAX_BLOCK, _ARGMAX_BLOCK)
    best, block = blocks.amax(dim=2).max(dim=1, keepdim=True)
    chosen = blocks.gather(1, block[..., None].expand(-1, -1, _ARGMAX_BLOCK)).squeeze(1)
    places = block * _ARGMAX_BLOCK + chosen.argmax(dim=1, keepdim=True)
    if whole < scores.shape[1]:
        rest, rest_places = scores[:, whole:].max(dim=1, keepdim=True)
        places = torch.where(rest > best, rest_places + whole, places)
        best = torch.maximum(best, rest)
    return best, places
