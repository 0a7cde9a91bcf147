"""Gradients summed over ranks in buckets, while the backward pass computes others.

DistributedDataParallel is not used: its buckets wait for the hook of every parameter, and CUDA graphs call none; it
averages; and it needs a `forward` of the wrapped model.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import nn

from maskwright.core.errors import DeviceError
from maskwright.training.ranks.distributed import RankSum, broadcast_object, is_launched, world_size

GradientPrecision = Literal["fp32", "bf16"]

_BUCKET_NUMBERS = 25 * 2**20 // 4
"""Maximum number of elements in a bucket with several parameters: 25 MiB in fp32, as in DistributedDataParallel."""


def gradient_dtype(precision: GradientPrecision) -> torch.dtype:
    """Return the type in which ranks exchange gradients.

    Raises DeviceError if it is unknown, or if it is bf16 and there are no ranks.
    """
    if precision not in get_args(GradientPrecision):
        allowed = ", ".join(get_args(GradientPrecision))
        raise DeviceError(f"unknown precision {precision!r} of gradients", allowed=allowed)
    if precision == "bf16" and not is_launched():
        raise DeviceError(
            "--gradient-precision bf16 concerns gradients that processes exchange; this run has one process",
            hint="Start it by torchrun (with --nproc-per-node 1 to resume a run of several), or leave the option out.",
        )
    return torch.float32 if precision == "fp32" else torch.bfloat16


class GradientReducer:
    """Sums gradients over all ranks: after a step's last backward pass, or each bucket as soon as it is computed.

    All ranks must have gradients for the same parameters at the end of a step. They sum the same buckets in the same
    order, but do not begin at the same time. In a run of one process nothing is done.

    Args:
        parameters: In the same order on all ranks.
        dtype: Type of the exchanged gradients; bfloat16 rounds at each addition.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], dtype: torch.dtype = torch.float32) -> None:
        self._parameters, self._dtype = list(parameters), dtype
        self._order: list[nn.Parameter] = []
        self._buckets: list[list[nn.Parameter]] = []
        self._begun: list[tuple[list[nn.Parameter], RankSum]] = []

    @contextmanager
    def last_backward(self, *, overlaps: bool = True) -> Iterator[None]:
        """Begin to sum all gradients, from the second time on while the backward pass in the block runs.

        `overlaps` must be False if autograd does not compute all of them, but for instance a CUDA graph.
        """
        if world_size() == 1:
            yield
            return
        buckets, computed = self._buckets, list[nn.Parameter]()
        bucket_of = {each: number for number, bucket in enumerate(buckets) for each in bucket}
        missing = [len(bucket) for bucket in buckets]

        def on_gradient(parameter: nn.Parameter) -> None:
            computed.append(parameter)
            if parameter in bucket_of:
                missing[bucket_of[parameter]] -= 1
            while len(self._begun) < len(buckets) and not missing[len(self._begun)]:
                self._begin(buckets[len(self._begun)])

        parameters = self._parameters if overlaps else []
        hooks = [each.register_post_accumulate_grad_hook(on_gradient) for each in parameters]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if not self._order:  # All ranks take rank 0's.
            numbers = {each: number for number, each in enumerate(self._parameters)}
            order = dict.fromkeys(broadcast_object([numbers[each] for each in computed]))
            others = [number for number in numbers.values() if number not in order]
            self._order = [self._parameters[number] for number in (*order, *reversed(others))]
        # If the set of parameters differs from the step before, ranks may have begun with different numbers of buckets.
        new = [each for each in self._order if each not in bucket_of and each.grad is not None]
        for bucket in (*buckets[len(self._begun) :], *_buckets(new)):
            if with_gradients := [each for each in bucket if each.grad is not None]:
                self._begin(with_gradients)
        self._buckets = [bucket for bucket, _ in self._begun]

    def _begin(self, bucket: list[nn.Parameter]) -> None:
        flat = torch.cat([each.grad.reshape(-1) for each in bucket if each.grad is not None])
        for each in bucket:
            each.grad = None
        self._begun.append((bucket, RankSum(flat.to(self._dtype))))

    def wait(self) -> None:
        """Put the sums into the parameters' `grad`."""
        for bucket, total in self._begun:
            parts = total.wait().float().split_with_sizes([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        self._begun.clear()


def _buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    bucket, size = list[nn.Parameter](), 0
    for parameter in parameters:
        if bucket and size + parameter.numel() > _BUCKET_NUMBERS:
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel()
    if bucket:
        yield bucket
