"""Our own kernels and captured passes for a run on a GPU, if they are proven there: one batch gives the same loss and
gradients as PyTorch's operations."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from maskwright.core.errors import DeviceError
from maskwright.encoder.encoder import Encoder
from maskwright.encoder.gpu.runs import takes_own
from maskwright.encoder.native.library import allowed as own_code_allowed
from maskwright.training.batches import StepBatch
from maskwright.training.model import PretrainingModel

Compiling = Literal["auto", "no"]
"""Whether a run on a GPU computes by our own kernels, its passes captured as graphs; on a CPU none does."""

_LOSS = 2e-3
"""Share of the loss by which one batch may differ."""
_GRADIENT = 0.05
"""Share of a gradient's norm by which it may differ: products of bfloat16 on both sides, in other orders."""
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
    with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
        lacking = [each for each in encoders if not each.computes_by_kernels(device, autocast or torch.float32)]
    if lacking:
        return "nothing: our kernels are for products of bfloat16, GELU, and widths that 16 divides, and need Triton"
    begun = time.perf_counter()
    batch = _comparable(model, batch, encoders)
    try:
        with model.drawing_the_same():
            with own_code_allowed(False):
                _attend_by(encoders, "rows")
                plain = _loss_and_gradients(model, batch, autocast)
            _attend_by(encoders, None)
            for encoder in encoders:
                encoder.capture_passes()
            for _ in range(_UNTIL_CAPTURED):
                own = _loss_and_gradients(model, batch, autocast)
        apart = _apart(plain, own)
    # Whatever a compiler stumbles over: without it everything computes as it did.
    except Exception as error:
        for encoder in encoders:
            encoder.passes, encoder.may_use_kernels = None, False
        _attend_by(encoders, None)
        for parameter in model.parameters():
            parameter.grad = None
        why = str(error) if isinstance(error, _Differs) else f"{_beginning(error)}"
        return f"nothing, the run goes on without: {why}"
    return f"layers, in {time.perf_counter() - begun:.0f} s; {apart}"


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


def _loss_and_gradients(
    model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None
) -> tuple[float, dict[str, Tensor]]:
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


def _apart(plain: tuple[float, dict[str, Tensor]], own: tuple[float, dict[str, Tensor]]) -> str:
    """Say how far two results are apart.

    Raises:
        _Differs: If that is too far.
    """
    (loss, gradients), (other_loss, others) = plain, own
    if gradients.keys() != others.keys():
        raise _Differs("other weights have gradients")
    norms = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    floor = _FLOOR * max(norms.values(), default=0.0) or 1.0
    shares = {name: float((others[name] - each).norm()) / max(norms[name], floor) for name, each in gradients.items()}
    worst = max(shares, key=lambda name: shares[name], default="")
    of_loss = abs(other_loss - loss) / abs(loss) if loss else abs(other_loss)
    told = f"loss {of_loss:.0e} and gradients {shares.get(worst, 0.0):.0e} apart on one batch"
    # So written that what is no number differs.
    if not (of_loss <= _LOSS and all(share <= _GRADIENT for share in shares.values())):
        raise _Differs(f"{told} (most: {worst}), allowed {_LOSS:.0e} and {_GRADIENT:.0e}")
    return told


def _beginning(error: Exception) -> str:
    # Compilers tell long stories; the second line says what theirs raised.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join((f"{type(error).__name__}:", *lines[:2]))
