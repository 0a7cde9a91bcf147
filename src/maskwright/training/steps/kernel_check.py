"""Check of the kernels on a GPU: one batch must give the same loss and gradients as PyTorch alone."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from maskwright.kernels.setting import kernel_errors, use_kernels
from maskwright.training.steps.batches import StepBatch
from maskwright.training.steps.loop import Phase
from maskwright.training.steps.model import PretrainingModel
from maskwright.training.steps.step import weighted_loss

_FACTOR = 3.0
"""Largest error of the kernels, as a multiple of PyTorch's own error in the same precision (both against fp32)."""
_LOSS, _GRADIENT = 1e-3, 0.02
"""Error allowed on top of that: a share of the loss, and of a gradient's norm."""
_SEQUENCES = 8
_UNTIL_CAPTURED = 2
"""Passes of one batch until CUDA graphs are captured and replayed."""
_FLOOR = 1e-3
"""Norms below this share of the largest count as this share: the gradient of a key's bias is zero but for rounding."""


class KernelCheck(NamedTuple):
    """Whether kernels may be used, and a line for the user."""

    passed: bool
    message: str


def check_kernels(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> KernelCheck:
    """Compute one small batch with and without kernels and compare losses and gradients; capture CUDA graphs.

    The model is in training mode, its gradients empty, as they are afterwards. Dropout, whose masks depend on the
    kernels, is off.
    """
    started = time.perf_counter()
    try:
        with use_kernels(False):
            batch = with_samples(model, batch)
            exact, plain = (_loss_and_gradients(model, batch, dtype) for dtype in (None, autocast))
        model.capture_passes()
        for _ in range(_UNTIL_CAPTURED):
            fast = _loss_and_gradients(model, batch, autocast)
    except kernel_errors() as error:
        model.release_passes()
        model.zero_grad(set_to_none=True)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return KernelCheck(False, " ".join(("kernels disabled:", f"{type(error).__name__}:", *lines[:2])))
    passed, difference = _compare(exact, plain, fast)
    model.release_passes()  # Captured passes of the small batch would keep their memory.
    if not passed:
        return KernelCheck(False, f"kernels disabled: {difference}")
    model.capture_passes()
    return KernelCheck(True, f"kernels checked in {time.perf_counter() - started:.0f} s: {difference}")


def check_phases(model: PretrainingModel, phases: Iterable[Phase], autocast: torch.dtype | None) -> KernelCheck:
    """Check the first sequences of each length, since the kernels differ by length; return the last check."""
    check = KernelCheck(False, "")
    for phase in {each.sampler: each for each in phases}.values():
        rows, _ = phase.sampler.read(phase.sampler.start(), _SEQUENCES)
        check = check_kernels(model, phase.collator.collate(rows, 0), autocast)
        if not check.passed:
            break
    return check


def with_samples(model: PretrainingModel, batch: StepBatch) -> StepBatch:
    """Return the batch without dropout and, with a generator, with its samples of now: every pass then has the same.

    A random number at the border of two tokens gives either, so passes that round differently sample others.
    """
    batch, micro_batches = batch.without_dropout(), []
    for micro in batch.micro_batches:
        targets = dict(micro.targets)
        with torch.no_grad():
            terms = {} if model.generator is None else model.losses(micro)
        for kind, term in terms.items():
            if term.sampled is not None:
                targets[kind] = replace(targets[kind], extra={**targets[kind].extra, "samples": term.sampled})
        micro_batches.append(replace(micro, targets=targets))
    return replace(batch, micro_batches=tuple(micro_batches))


_Computed = tuple[float, Mapping[str, Tensor]]
"""A loss, and gradients by parameter name."""


def _loss_and_gradients(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> _Computed:
    device, loss = next(model.parameters()).device, 0.0
    for micro in batch.micro_batches:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            terms = model.losses(micro)
        total = weighted_loss(model.objectives, terms, batch.counts)
        torch.autograd.backward(total)
        loss += float(total.detach())
    gradients = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad(set_to_none=True)
    return loss, gradients


def _compare(exact: _Computed, plain: _Computed, fast: _Computed) -> tuple[bool, str]:
    """Return whether the kernels' errors against fp32 are small enough beside PyTorch's, and describe the largest."""
    if plain[1].keys() != fast[1].keys():
        return False, "other parameters have gradients"
    norms = {name: float(gradient.norm()) for name, gradient in exact[1].items()}
    floor = _FLOOR * max(norms.values(), default=0.0) or 1.0

    def gradient_error(name: str, computed: _Computed) -> float:
        return float((computed[1][name].double() - exact[1][name]).norm()) / max(norms[name], floor)

    def loss_error(computed: _Computed) -> float:
        return abs(computed[0] - exact[0]) / (abs(exact[0]) or 1.0)

    # Negative or NaN where an error is too large.
    margins = {name: _FACTOR * gradient_error(name, plain) + _GRADIENT - gradient_error(name, fast) for name in norms}
    worst = min(margins, key=lambda name: -math.inf if math.isnan(margins[name]) else margins[name])
    passed = loss_error(fast) <= _FACTOR * loss_error(plain) + _LOSS and margins[worst] >= 0
    return passed, (
        f"loss {loss_error(fast):.0e} and gradient of {worst} {gradient_error(worst, fast):.0e} from fp32's, "
        f"PyTorch's {loss_error(plain):.0e} and {gradient_error(worst, plain):.0e}"
    )
