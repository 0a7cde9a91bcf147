"""Our own kernels and captured passes for a run on a GPU, if they are proven there: on one batch they come as near to
the loss and gradients of fp32 as PyTorch's operations of the same precision do."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from maskwright.core.errors import DeviceError
from maskwright.kernels.cuda.runs import takes_own
from maskwright.kernels.setting import use_native_kernels
from maskwright.model.encoder import Encoder
from maskwright.training.batches import StepBatch
from maskwright.training.model import PretrainingModel

Compiling = Literal["auto", "no"]
"""Whether a run on a GPU computes by our own kernels, its passes captured as graphs; on a CPU none does."""

_TIMES = 3.0
"""How many times as far from fp32 as PyTorch's operations in bfloat16 are a loss or gradient by our kernels may be."""
_LOSS, _GRADIENT = 1e-3, 0.02
"""Share of the loss, and of a gradient's norm, that may be added to that."""
_FLOOR = 1e-3
"""Share of the largest norm of all below which a gradient's own does not count: a key's bias has none."""
_UNTIL_CAPTURED = 3
"""Passes after which graphs are made and have been replayed."""


def compiles_on(device: torch.device, wish: Compiling) -> bool:
    """Say whether a run on a device computes by our own kernels.

    Raises:
        DeviceError: If there is no such wish.
    """
    if wish not in get_args(Compiling):
        raise DeviceError(f"unknown wish {wish!r} for compiling", allowed=", ".join(get_args(Compiling)))
    return wish == "auto" and device.type == "cuda"


_Computed = tuple[float, dict[str, Tensor]]
"""A loss, and gradients by name."""


class _Differs(Exception):
    pass


def compile_model(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> str:
    """Have a model's layers computed by our own kernels, and its passes captured, if that works and gives the same.

    Args:
        model: In training mode, on its device, gradients empty, as they are afterwards.
        batch: What is computed both ways, with the same masks of dropout where our own attention draws them. Small.
        autocast: Compute type of matrix products; None for fp32.

    Returns:
        What came of it, a line for the user.
    """
    encoders = [each for each in (model.encoder, model.generator) if each is not None]
    device = next(model.parameters()).device
    _permit(encoders, True)
    with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
        lacking = [each for each in encoders if not each.uses_native_kernels(device, autocast or torch.float32)]
    if lacking:
        _permit(encoders, False)
        return (
            "nothing: our kernels take products of bfloat16, GELU or ReLU, and widths that 16 divides, and need Triton "
            "(`pip install triton`); PyTorch's operations compute"
        )
    begun = time.perf_counter()
    batch = _comparable(model, batch, encoders)
    try:
        with model.drawing_the_same():
            with use_native_kernels(False):
                _attend_by(encoders, "rows")
                plain = _loss_and_gradients(model, batch, autocast)
                exact = _loss_and_gradients(model, batch, None)
            _attend_by(encoders, None)
            for encoder in encoders:
                encoder.capture_passes()
            for _ in range(_UNTIL_CAPTURED):
                own = _loss_and_gradients(model, batch, autocast)
        apart = _apart(exact, plain, own)
    # Whatever a compiler stumbles over: without it everything computes as it did.
    except Exception as error:
        for encoder in encoders:
            encoder.passes = None
        _permit(encoders, False)
        _attend_by(encoders, None)
        for parameter in model.parameters():
            parameter.grad = None
        why = str(error) if isinstance(error, _Differs) else f"{_beginning(error)}"
        return f"nothing, the run goes on without: {why}"
    for encoder in encoders:
        encoder.capture_passes()  # Those of the small batch would keep their memory.
    return f"layers, in {time.perf_counter() - begun:.0f} s; {apart}"


def uses_native_kernels(model: PretrainingModel) -> bool:
    """Say whether `compile_model` found our own code to compute rightly."""
    return all(each.native_kernels_verified for each in (model.encoder, model.generator) if each is not None)


def _permit(encoders: Sequence[Encoder], wish: bool) -> None:
    for encoder in encoders:
        encoder.native_kernels_verified = wish


def _comparable(model: PretrainingModel, batch: StepBatch, encoders: Sequence[Encoder]) -> StepBatch:
    # Masks drawn by other code than ours are others: nothing is dropped then.
    lengths = {each.batch.row_length or 0 for each in batch.micro_batches}
    if all(takes_own(length, each.config.head_size) for length in lengths for each in encoders):
        return batch
    undropped = (replace(each, batch=replace(each.batch, dropout_key=None)) for each in batch.micro_batches)
    return replace(batch, micro_batches=tuple(undropped))


def _attend_by(encoders: Sequence[Encoder], backend: Literal["rows"] | None) -> None:
    for encoder in encoders:
        encoder.backend = backend


def _loss_and_gradients(model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None) -> _Computed:
    device, loss = next(model.parameters()).device, 0.0
    for micro in model.placed(batch).micro_batches:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            terms = model.losses(micro)
        total = torch.stack(
            [each.weight / max(1, batch.counts[each.kind]) * terms[each.kind].total for each in model.objectives]
        ).sum()
        torch.autograd.backward(total)
        loss += float(total.detach())
    # Copies: what a captured pass gives stands where the next one writes.
    gradients = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return loss, gradients


def _apart(exact: _Computed, plain: _Computed, own: _Computed) -> str:
    """Say how far from the exact results ours are, and PyTorch's of the same precision.

    Args:
        exact: Loss and gradients in fp32.
        plain: The same in bfloat16 by PyTorch's operations.
        own: The same by our kernels.

    Raises:
        _Differs: If ours are too much farther.
    """
    if plain[1].keys() != own[1].keys():
        raise _Differs("other weights have gradients")
    norms = {name: float(gradient.norm()) for name, gradient in exact[1].items()}
    floor = _FLOOR * max(norms.values(), default=0.0) or 1.0

    def of_gradient(name: str, computed: _Computed) -> float:
        return float((computed[1][name].double() - exact[1][name]).norm()) / max(norms[name], floor)

    def of_loss(computed: _Computed) -> float:
        return abs(computed[0] - exact[0]) / (abs(exact[0]) or 1.0)

    # How far ours may be, less how far they are: negative, or no number, where that is too far.
    left = {name: _TIMES * of_gradient(name, plain) + _GRADIENT - of_gradient(name, own) for name in own[1]}
    worst = min(left, key=lambda name: left[name] if left[name] == left[name] else -math.inf, default="")
    told = f"loss {of_loss(own):.0e} from that of fp32"
    if worst:
        told += f" and gradients {of_gradient(worst, own):.0e}"
    if not (of_loss(own) <= _TIMES * of_loss(plain) + _LOSS and all(room >= 0 for room in left.values())):
        raise _Differs(
            f"{told} (most: {worst}), by PyTorch's operations {of_loss(plain):.0e} and {of_gradient(worst, plain):.0e}"
        )
    return f"{told} on one batch"


def _beginning(error: Exception) -> str:
    # Compilers tell long stories; the second line says what theirs raised.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join((f"{type(error).__name__}:", *lines[:2]))
