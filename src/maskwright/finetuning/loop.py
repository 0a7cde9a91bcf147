"""Fine-tuning, step by step: a generator of reports, like pretraining's. Nothing here is random but by its key."""

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from maskwright.core.errors import TrainingError
from maskwright.finetuning.batching import Batcher, StepBatches, units_of_step
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.finetuning.layer_rates import LayerwiseAdamW
from maskwright.training.adamw import total_norm
from maskwright.training.optimizer import clipping_scale
from maskwright.training.schedule import rate_factor


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step, in numbers.

    Attributes:
        step: Steps done, this one counted.
        loss: Mean over what is predicted, in nats (regression: squared error).
        gradient_norm: Global norm before clipping.
        learning_rate: The head's in this step.
        num_tokens: Real tokens.
        seconds: Wall clock of the step.
    """

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    num_tokens: int
    seconds: float


def train(
    model: FineTunedModel,
    optimizer: LayerwiseAdamW,
    batcher: Batcher,
    *,
    settings: Hyperparameters,
    seed: int,
    first_step: int,
    last_step: int,
    autocast: torch.dtype | None,
) -> Iterator[StepReport]:
    """Train, yielding a report after each step.

    The next step's batch is made by one thread while the current one computes; what was prepared ahead is dropped when
    the loop is left.

    Args:
        model: On its device.
        optimizer: Over the model's parameters, `first_step` steps old.
        batcher: Lays out the units to learn from.
        settings: Batch size, rate, clipping.
        seed: Keys order and dropout.
        first_step: Steps done already.
        last_step: Steps of the whole training.
        autocast: Compute type of matrix products, None for fp32.

    Raises:
        TrainingError: If a loss or a gradient is not finite; the weights are those of the step before.
    """

    num_units = batcher.features.num_units

    def make(step: int) -> StepBatches:
        units = units_of_step(num_units, settings.batch_size, seed=seed, step=step)
        return batcher.step(units, seed=seed, step=step)

    def submit(step: int) -> Future[StepBatches]:
        return maker.submit(make, step)

    with ThreadPoolExecutor(1, thread_name_prefix="batches") as maker:
        ahead = submit(first_step)
        for step in range(first_step, last_step):
            begun = time.perf_counter()
            batch = ahead.result()
            ahead = submit(step + 1)
            rate = settings.learning_rate * rate_factor(settings.schedule, step / last_step, settings.warmup_share)
            model.train()  # Measuring in between leaves it in evaluation mode.
            loss, norm = _take_step(model, optimizer, batch, rate, settings.clip_norm, step, autocast)
            yield StepReport(step + 1, loss, norm, rate, batch.num_tokens, time.perf_counter() - begun)


def _take_step(
    model: FineTunedModel,
    optimizer: LayerwiseAdamW,
    batch: StepBatches,
    learning_rate: float,
    clip_norm: float,
    step: int,
    autocast: torch.dtype | None,
) -> tuple[float, float]:
    """Sum losses over the micro-batches, divided by the count of the whole step; clip; update.

    DEVIATION: ELECTRA's code clips the gradient of the sum over the batch (run_finetuning.py:71), so that its limit of
    1 nearly always binds; here the mean's is clipped, and a limit means the same at every batch size.

    Returns:
        The mean loss and the gradient's norm before clipping.
    """
    device = next(model.parameters()).device
    mean = 0.0
    for micro in batch.micro_batches:
        with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
            scores = model.scores(micro)
        total, _ = model.task.loss(scores.float(), micro)
        share = total / max(1, batch.count)
        share.backward()  # type: ignore[no-untyped-call]
        mean += float(share.detach())
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = float(total_norm(gradients))
    if not math.isfinite(mean) or not math.isfinite(norm):
        raise TrainingError(
            f"step {step + 1}: the loss is {mean:g} and the gradient norm {norm:g}; training stops before the weights "
            "are touched",
            todo="Lower the rate (`--set learning_rate=...`) in a new folder.",
        )
    optimizer.step(learning_rate, gradient_scale=clipping_scale(norm, clip_norm))
    return mean, norm
