"""One optimizer step: losses are summed over micro-batches and divided once, by the counts of the whole step."""

import math
from dataclasses import dataclass, field

import torch

from maskwright.core.errors import TrainingError
from maskwright.training.batches import StepBatch
from maskwright.training.model import PretrainingModel
from maskwright.training.adamw import Clipping
from maskwright.training.optimizer import Optimizer
from maskwright.training.tallies import Sums, Tallies


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step measured. Numbers only, none of them depends on the clock.

    Attributes:
        loss: The weighted total in nats.
        losses: Mean loss of each objective, by kind.
        accuracies: Share of right predictions of each objective that has any, by kind.
        gradient_norm: Global norm before clipping.
        details: Further shares of each objective that has any, by kind and name (`Objective.details`).
        skipped_flops: Operations of the documented formula that were not needed (`PretrainingModel.skipped_flops`).
    """

    loss: float
    losses: dict[str, float]
    accuracies: dict[str, float]
    gradient_norm: float
    details: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped_flops: float = 0.0


def take_step(
    model: PretrainingModel,
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
        batch: The step's micro-batches.
        learning_rate: For this step.
        clip_norm: Gradients are scaled down to this global norm; 0 is off.
        step: The step's number, for messages.
        autocast: Compute type of matrix products (bfloat16); None keeps fp32.

    Raises:
        TrainingError: If nothing is predicted, or the loss or the gradient is not finite; weights are untouched.
    """
    if not any(batch.counts.values()):
        raise TrainingError(
            f"step {step} ({batch.key}): nothing is predicted in it",
            todo="Raise masking.rate, or training.batch_sequences.",
        )
    device = next(model.parameters()).device
    # They stay on the device until all micro-batches are through: each number that is read has a GPU waited for.
    summed, right, tallies, skipped_flops = Sums(), Sums(), Tallies(), 0.0
    for micro in model.placed(batch).micro_batches:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            terms = model.losses(micro)
        weighted = [
            objective.weight / max(1, batch.counts[objective.kind]) * terms[objective.kind].total
            for objective in model.objectives
        ]
        torch.autograd.backward(torch.stack(weighted).sum())
        skipped_flops += model.skipped_flops(micro)
        for kind, term in terms.items():
            summed.add(kind, term.total)
            if term.correct is not None:
                right.add(kind, term.correct)
            tallies.add(kind, term)
    gradients = [parameter.grad for parameter in optimizer.names if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=device.type != "cpu")
    waits = not (device.type == "cuda" and optimizer.refuses_itself)
    if not waits:
        # A GPU looks itself at whether the step is sound, and goes on to the update while the host reads the numbers.
        total = torch.stack([summed.total(each.kind) for each in model.objectives]).sum()
        optimizer.step(learning_rate, clipping=Clipping.of(norm, total, clip_norm))
    totals, correct = summed.read(), right.read()
    losses = {kind: totals[kind] / count for kind, count in batch.counts.items() if count}
    loss = sum(objective.weight * losses.get(objective.kind, 0.0) for objective in model.objectives)
    gradient_norm = float(norm)
    if not math.isfinite(loss) or not math.isfinite(gradient_norm):
        raise TrainingError(
            f"step {step} ({batch.key}): the loss is {loss:g} and the gradient norm {gradient_norm:g}; the run stops "
            "before the weights are touched",
            todo="Checkpoints are of earlier steps, and sound. Lower it (`--set training.learning_rate=...`) in a "
            "new run.",
        )
    if waits:
        if clip_norm and gradient_norm > clip_norm:
            torch._foreach_mul_(gradients, clip_norm / (gradient_norm + 1e-6))
        optimizer.step(learning_rate)
    return StepResult(
        loss=loss,
        losses=losses,
        accuracies={kind: correct[kind] / count for kind, count in batch.counts.items() if count and kind in correct},
        gradient_norm=gradient_norm,
        details=tallies.details(model.objectives, batch.counts),
        skipped_flops=skipped_flops,
    )
