"""Compiled blocks for a run on a GPU, if they are proven there: one batch gives the same loss and gradients."""

import time
import warnings
from typing import Literal, get_args

import torch
from torch import Tensor

from maskwright.core.errors import DeviceError
from maskwright.encoder.compiled_blocks import Backend, compile_blocks, restore_blocks
from maskwright.training.batches import StepBatch
from maskwright.training.model import PretrainingModel

Compiling = Literal["auto", "no"]
"""Whether a run on a GPU compiles its blocks; on a CPU none does."""

_LOSS = {None: 1e-5, torch.bfloat16: 2e-3}
"""Share of the loss by which one batch may differ, by the type of the products (None: fp32)."""
_GRADIENT = {None: 1e-4, torch.bfloat16: 0.05}
"""Share of a gradient's norm by which it may differ. On a CPU 12 layers of 128 differ by 6e-7 in fp32 (inductor) and by
.005 under bf16 autocast (aot_eager); not measured on a GPU, whose sums have other orders."""
_FLOOR = 1e-3
"""Share of the largest norm of all below which a gradient's own does not count: a key's bias has none."""


def compiles_on(device: torch.device, wish: Compiling) -> bool:
    """Say whether a run on a device compiles its blocks.

    Raises:
        DeviceError: If there is no such wish.
    """
    if wish not in get_args(Compiling):
        raise DeviceError(f"unknown wish {wish!r} for compiling", allowed=", ".join(get_args(Compiling)))
    return wish == "auto" and device.type == "cuda"


class _Differs(Exception):
    pass


def compile_model(
    model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None, backend: Backend = "inductor"
) -> str:
    """Have a model's blocks compiled if that works and one batch gives what it gave before; else leave them.

    Args:
        model: In training mode, on its device, gradients empty, as they are afterwards.
        batch: What is computed both ways, dropout as the model has it. Small.
        autocast: Compute type of matrix products; None for fp32.
        backend: For `torch.compile`.

    Returns:
        What came of it, a line for the user.
    """
    encoders = [each for each in (model.encoder, model.generator) if each is not None]
    begun = time.perf_counter()
    try:
        plain = _loss_and_gradients(model, batch, autocast)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A compiler's are about its own doings.
            for encoder in encoders:
                compile_blocks(encoder, backend)
            compiled = _loss_and_gradients(model, batch, autocast)
        apart = _apart(plain, compiled, autocast)
    # Whatever a compiler stumbles over: without it everything computes as it did.
    except Exception as error:
        for encoder in encoders:
            restore_blocks(encoder)
        for parameter in model.parameters():
            parameter.grad = None
        why = str(error) if isinstance(error, _Differs) else f"{_beginning(error)}"
        return f"no blocks, the run goes on without: {why}"
    return f"blocks in {time.perf_counter() - begun:.0f} s; {apart}"


def _loss_and_gradients(
    model: PretrainingModel, batch: StepBatch, autocast: torch.dtype | None
) -> tuple[float, dict[str, Tensor]]:
    device, loss = next(model.parameters()).device, 0.0
    for micro in batch.micro_batches:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            terms = model.losses(micro.to(device))
        total = torch.stack(
            [each.weight / max(1, batch.counts[each.kind]) * terms[each.kind].total for each in model.objectives]
        ).sum()
        torch.autograd.backward(total)
        loss += float(total.detach())
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    return loss, gradients


def _apart(
    plain: tuple[float, dict[str, Tensor]], compiled: tuple[float, dict[str, Tensor]], autocast: torch.dtype | None
) -> str:
    """Say how far two results are apart.

    Raises:
        _Differs: If that is too far.
    """
    (loss, gradients), (other_loss, others) = plain, compiled
    if gradients.keys() != others.keys():
        raise _Differs("other weights have gradients")
    norms = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    floor = _FLOOR * max(norms.values(), default=0.0) or 1.0
    shares = [float((others[name] - each).norm()) / max(norms[name], floor) for name, each in gradients.items()]
    of_loss = abs(other_loss - loss) / abs(loss) if loss else abs(other_loss)
    told = f"loss {of_loss:.0e} and gradients {max(shares, default=0.0):.0e} apart on one batch"
    # So written that what is no number differs.
    if not (of_loss <= _LOSS[autocast] and all(share <= _GRADIENT[autocast] for share in shares)):
        raise _Differs(f"{told}, allowed {_LOSS[autocast]:.0e} and {_GRADIENT[autocast]:.0e}")
    return told


def _beginning(error: Exception) -> str:
    # Compilers tell long stories; the second line says what theirs raised.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join((f"{type(error).__name__}:", *lines[:2]))
