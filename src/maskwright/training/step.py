"""One optimizer step: losses are summed over micro-batches and divided once, by the counts of the whole step.

A step has three parts: gradients, the update, and its numbers for the host. On a GPU all three are asynchronous; the
GPU is never idle if the next step's gradients are launched before the numbers are awaited.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from maskwright.core.errors import TrainingError
from maskwright.core.tensors import LossTerm
from maskwright.training.batches import StepBatch
from maskwright.training.distributed import all_reduce_sum
from maskwright.training.optimizer import Clipping, Optimizer, clipping_scale, total_norm
from maskwright.training.tallies import HostSums, Sums, WeightedLoss, details_of


class TrainedModel(Protocol):
    """What a step needs of a model: a pretraining model, or an encoder with a task head."""

    @property
    def objectives(self) -> Sequence[WeightedLoss]:
        """Its losses."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters."""

    def placed(self, batch: StepBatch) -> StepBatch:
        """Return the micro-batches on the model's device."""

    def losses(self, micro_batch: Any) -> Mapping[str, LossTerm]:
        """Return the summed loss of each objective, by kind."""

    def skipped_flops(self, micro_batch: Any) -> float:
        """Return the FLOPs that the formula counts but the step did not compute."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The numbers of one step; none depends on the clock.

    Attributes:
        loss: The weighted total in nats.
        losses: Mean loss of each objective, by kind.
        accuracies: Share of correct predictions of each objective that has them, by kind.
        gradient_norm: Global norm before clipping.
        details: Further shares, by kind and name (`Objective.details`).
        skipped_flops: FLOPs that the formula counts but the step did not compute.
    """

    loss: float
    losses: dict[str, float]
    accuracies: dict[str, float]
    gradient_norm: float
    details: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped_flops: float = 0.0


def take_step(
    model: TrainedModel,
    optimizer: Optimizer,
    batch: StepBatch,
    *,
    learning_rate: float,
    clip_norm: float,
    step: int,
    autocast: torch.dtype | None = None,
) -> StepResult:
    """Compute gradients over all micro-batches, clip, and update.

    Args:
        model: In training mode.
        optimizer: Over the model's parameters, gradients empty.
        clip_norm: Largest global norm of the gradients; 0 is off.
        step: The step's number, for messages.
        autocast: Matmul type (bfloat16); None is fp32.

    Raises:
        TrainingError: If nothing is predicted, or the loss or the gradient is not finite; weights are untouched.
    """
    gradients = Gradients(model, optimizer, batch, step=step, autocast=autocast)
    return gradients.update(learning_rate=learning_rate, clip_norm=clip_norm).result()


class Gradients:
    """The gradients of a step, in the parameters' `grad` (see `take_step`); on a GPU perhaps still being computed.

    Raises:
        TrainingError: If nothing is predicted.
    """

    def __init__(
        self,
        model: TrainedModel,
        optimizer: Optimizer,
        batch: StepBatch,
        *,
        step: int,
        autocast: torch.dtype | None = None,
    ) -> None:
        if not any(batch.counts.values()):
            raise TrainingError(
                f"step {step} ({batch.key}) has no prediction",
                todo="Raise masking.rate, or training.batch_sequences.",
            )
        self.batch, self._model, self._optimizer, self._step = batch, model, optimizer, step
        self._device = next(model.parameters()).device
        # Sums stay on the device: reading each number would wait for the GPU.
        self._sums, skipped_flops = Sums(), 0.0
        for micro in model.placed(batch).micro_batches:
            with torch.autocast(self._device.type, autocast or torch.bfloat16, enabled=autocast is not None):
                terms = model.losses(micro)
            weighted = [
                objective.weight / max(1, batch.counts[objective.kind]) * terms[objective.kind].total
                for objective in model.objectives
            ]
            torch.autograd.backward(torch.stack(weighted).sum())
            skipped_flops += model.skipped_flops(micro)
            for kind, term in terms.items():
                self._sums.add_term(kind, term)
        self._sums.add("skipped", "", torch.full((), skipped_flops, dtype=torch.float64, device=self._device))

    def drop(self) -> None:
        """Delete them."""
        for parameter in self._optimizer.names:
            parameter.grad = None

    def update(self, *, learning_rate: float, clip_norm: float) -> "Update":
        """Clip and update; gradients are then dropped.

        Raises:
            TrainingError: If the loss or the gradient is not finite and the host checks it (`skips_on_device`); weights
                are untouched.
        """
        gradients = [parameter.grad for parameter in self._optimizer.names if parameter.grad is not None]
        all_reduce_sum(gradients)
        self._sums.all_reduce_sum()
        norm = total_norm(gradients)
        if skips_on_device(self._device, self._optimizer):
            total = torch.stack([self._sums.total("loss", each.kind) for each in self._model.objectives]).sum()
            self._optimizer.step(learning_rate, clipping=Clipping.of(norm, total, clip_norm))
            return self._updated(norm)
        update = self._updated(norm)
        gradient_norm = update.result().gradient_norm
        self._optimizer.step(learning_rate, gradient_scale=clipping_scale(gradient_norm, clip_norm))
        return update

    def _updated(self, norm: Tensor) -> "Update":
        self._sums.add("norm", "", norm)
        return Update(self._model, self.batch, self._sums.to_host(), self._step)


def skips_on_device(device: torch.device, optimizer: Optimizer) -> bool:
    """Whether the device itself skips updates with a non-finite loss or gradient, so that the host need not wait."""
    return device.type == "cuda" and optimizer.accepts_clipping


class Update:
    """An update, on a GPU perhaps still being computed, and its numbers."""

    def __init__(
        self,
        model: TrainedModel,
        batch: StepBatch,
        numbers: HostSums,
        step: int,
    ) -> None:
        self._model, self._batch, self._numbers, self._step = model, batch, numbers, step

    @property
    def is_done(self) -> bool:
        """Whether the device has finished the step."""
        return self._numbers.is_done

    def result(self) -> StepResult:
        """Wait for the step's numbers and return them.

        Raises:
            TrainingError: If the loss or the gradient is not finite; weights are untouched.
        """
        numbers, counts, objectives = self._numbers.read(), self._batch.counts, self._model.objectives
        totals, correct, gradient_norm = numbers["loss"], numbers["correct"], numbers["norm"][""]
        losses = {kind: totals[kind] / count for kind, count in counts.items() if count}
        loss = sum(objective.weight * losses.get(objective.kind, 0.0) for objective in objectives)
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            raise TrainingError(
                f"step {self._step} ({self._batch.key}): the loss is {loss:g} and the gradient norm "
                f"{gradient_norm:g}; the run stops before the update",
                todo="Lower the learning rate (`--set training.learning_rate=...`, in fine-tuning `--set "
                "learning_rate=...`) and use a new --out folder.",
            )
        return StepResult(
            loss=loss,
            losses=losses,
            accuracies={kind: correct[kind] / count for kind, count in counts.items() if count and kind in correct},
            gradient_norm=gradient_norm,
            details=details_of(objectives, counts, numbers),
            skipped_flops=numbers["skipped"][""],
        )
