"""Cross entropy over a tied vocabulary that never holds more than one block of logits."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from maskwright.kernels.cross_entropy_blocks import (
    BLOCK_ELEMENTS,
    ended,
    exact_dtype,
    in_blocks,
    keep,
    scaled_once,
)
from maskwright.kernels.cuda.cross_entropy import (
    GPU_BLOCK_ELEMENTS,
    draw_on_gpu,
    score_on_gpu,
)
from maskwright.kernels.highest import highest
from maskwright.kernels.setting import has_kernels, native_kernels_enabled


class Scores(NamedTuple):
    """What one pass over the vocabulary gives.

    Attributes:
        total: Summed cross entropy in nats (scalar, fp32 or finer; differentiable once, and backward runs once).
        correct: How many predictions are right (scalar, int64).
        sampled: Shape (M,), int64, a token drawn from each predicted distribution; None if not asked for.
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
    """Score `features @ weight.T + bias` against labels: the summed cross entropy, and how many are right.

    Equals `cross_entropy(linear(features, weight, bias).float(), labels, reduction="sum")`. Logits are made
    in blocks of targets and turned into their own gradient in place, so that one block is the most that is
    ever held; the plain way holds all of them three or four times. Under bf16 autocast on a GPU the blocks are larger,
    and Triton kernels compute the gradients (`cuda.cross_entropy`).

    Args:
        features: Shape (M, E); M may be 0. Rows beyond those of the labels (`row_counts.filled_up`) are multiplied with
            the others and count for nothing: their gradient is 0.
        weight: Shape (V, E).
        bias: Shape (V,).
        labels: Shape (M,), int64, in [0, V).
        block_elements: Most logits held at a time; None for `BLOCK_ELEMENTS`, `GPU_BLOCK_ELEMENTS` with those kernels.
        sampling: Shape (M,), uniform numbers in [0, 1): draws the token at which the summed probabilities, taken in
            the order of ids, pass that number. One number a token gives the same distribution as one Gumbel noise a
            logit, at a thousandth of the random numbers. Under autocast the loss is that of rounded logits, but tokens
            are drawn by logits multiplied anew in fp32 (a second block; on a GPU by fp32 products of bf16 factors): in
            bf16 those from 8 on are multiples of 1/16. A number on the border of two tokens may draw either where the
            sums are another code's. On CUDA in fp32, PyTorch does not promise that a running sum is the same each time
            (`torch.use_deterministic_algorithms` names `cumsum`): there it may each time.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    exact = exact_dtype(dtype)
    with torch.autocast(device, enabled=False):
        if dtype == torch.bfloat16 and native_kernels_enabled() and has_kernels(features.device):
            most = block_elements or GPU_BLOCK_ELEMENTS
            total, correct = _SummedOnGpu.apply(  # type: ignore[no-untyped-call]
                features, weight, bias, labels, most, torch.is_grad_enabled()
            )
            drawn = None if sampling is None else draw_on_gpu(features, weight, bias, sampling, most)
            return Scores(total, correct, drawn)
        rows = max(1, (block_elements or BLOCK_ELEMENTS) // len(weight))
        drawing = None
        if sampling is not None:
            unrounded = None if dtype == exact else (features.to(exact), weight.to(exact), bias.to(exact))
            drawing = _Drawing(sampling, unrounded)
        features, weight, bias = features.to(dtype), weight.to(dtype), bias.to(dtype)
        total, correct, sampled = _SummedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            features, weight, bias, labels, rows, torch.is_grad_enabled(), drawing
        )
    return Scores(total, correct, sampled if sampling is not None else None)


class _Drawing(NamedTuple):
    """What tokens are drawn by.

    Attributes:
        numbers: Shape (M,), uniform in [0, 1).
        unrounded: Features, weight and bias in fp32; None where the logits that are scored are not rounded.
    """

    numbers: Tensor
    unrounded: tuple[Tensor, Tensor, Tensor] | None

    def draw(self, part: slice, exponentials: Tensor) -> Tensor:
        """Return where the running sums of probabilities pass the numbers of some targets.

        Args:
            part: Which targets, R of them.
            exponentials: Their probabilities by the scored logits, each row times a number of its own. Shape (R, V).
        """
        numbers = self.numbers[part, None]
        if self.unrounded is not None:
            features, weight, bias = self.unrounded
            # The features may have added rows behind the targets.
            logits = torch.nn.functional.linear(features[part], weight, bias)[: len(numbers)]
            exponentials = logits.sub_(logits.amax(dim=1, keepdim=True)).exp_()
        running = exponentials.cumsum(dim=1)
        whole = running[:, -1:].contiguous()
        wanted = whole * numbers.to(exponentials.dtype)
        # Rounding must not carry a number near 1 beyond the last token that has any probability.
        wanted = torch.minimum(wanted, torch.nextafter(whole, torch.zeros_like(whole)))
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
        drawing: _Drawing | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # Sums are kept in fp32 (or fp64) whatever the precision of the products.
        exact = exact_dtype(weight.dtype)
        total, correct = weight.new_zeros((), dtype=exact), labels.new_zeros(())
        bias_grad = bias.new_zeros(bias.shape if with_gradients else 0, dtype=exact)
        sampled = labels.new_zeros(len(labels) if drawing is not None else 0)

        def slopes_of(part: slice, block: Tensor) -> Tensor | None:
            answers = labels[part, None]
            of_all = torch.nn.functional.linear(block, weight, bias).to(exact)
            logits = of_all[: len(answers)]
            best, guesses = highest(logits)
            correct.add_((guesses == answers).sum())
            of_answers = logits.gather(1, answers) - best
            exponentials = logits.sub_(best).exp_()
            sums = exponentials.sum(dim=1, keepdim=True)
            total.add_((sums.log() - of_answers).sum())
            if drawing is not None:
                sampled[part] = drawing.draw(part, exponentials)
            if not with_gradients:
                return None
            # d loss / d logits = softmax - one hot, written over the logits.
            slopes = exponentials.div_(sums).scatter_add_(1, answers, torch.full_like(sums, -1.0))
            bias_grad.add_(slopes.sum(dim=0))
            of_all[len(answers) :] = 0
            return of_all.to(weight.dtype)

        features_grad, weight_grad = in_blocks(features, weight, len(labels), rows, slopes_of)
        if with_gradients:
            keep(ctx, features_grad, ended(weight_grad, weight), bias_grad.to(bias.dtype))
        ctx.mark_non_differentiable(correct, sampled)
        return total, correct, sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_once(ctx, slope), None, None, None, None


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
        # The weight comes as it is, and is rounded inside: its gradient then is in its own precision at once.
        scored = score_on_gpu(features, weight, bias, labels, block_elements, with_slopes=with_gradients)
        if scored.slopes is not None:
            keep(ctx, *scored.slopes)
        ctx.mark_non_differentiable(scored.correct)
        return scored.total, scored.correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *scaled_once(ctx, slope), None, None, None
