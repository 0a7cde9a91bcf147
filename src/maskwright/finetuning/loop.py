"""The fine-tuning loop: a generator of step reports, and AdamW with layer-wise learning rates.

Layer-wise decay is ELECTRA's (Clark et al. 2020, appendix B; model/optimization.py:181-193). Each weight has a depth:
embeddings 0, layer k has k + 1, the pooler (which ELECTRA lacks) L + 1, the head L + 2; its learning rate is the head's
times decay^(L + 2 - depth). So the top layer learns at decay^2, not at decay.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maskwright.core.errors import TrainingError
from maskwright.finetuning.features import Batcher, StepBatches, units_of_step
from maskwright.finetuning.fine_tuned import FineTunedModel
from maskwright.finetuning.hyperparameters import Hyperparameters
from maskwright.model.config import EncoderConfig
from maskwright.recipes.optimization import AdamW
from maskwright.training.adamw import total_norm
from maskwright.training.optimizer import Optimizer, clipping_scale
from maskwright.training.schedule import rate_factor

_ENCODER = "encoder."
_BLOCKS = {"attention_blocks", "ffn_blocks"}


def rate_share(name: str, config: EncoderConfig, decay: float) -> float:
    """Return the factor on the head's learning rate for a parameter, "encoder.*" or of the head.

    Example:
        >>> rate_share("encoder.ffn_blocks.11.dense_in.weight", EncoderConfig(num_layers=12), 0.8)
        0.64
    """
    return float(decay ** (config.num_layers + 2 - _depth(name, config)))


def _depth(name: str, config: EncoderConfig) -> int:
    if not name.startswith(_ENCODER):
        return config.num_layers + 2
    part, _, rest = name.removeprefix(_ENCODER).partition(".")
    if part == "pooler":
        return config.num_layers + 1
    if part not in _BLOCKS:
        return 0
    plan = config.layer_plan("attention" if part == "attention_blocks" else "ffn")
    block = int(rest.partition(".")[0])
    # Shared by several layers: the highest counts.
    return max(layer for layer, used in enumerate(plan) if used == block) + 1


class LayerwiseAdamW:
    """AdamW with layer-wise learning rates: one optimizer per rate.

    `decay`: see `rate_share`; 1 gives all parameters the same rate.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, nn.Parameter]],
        config: EncoderConfig,
        constants: AdamW,
        decay: float,
    ) -> None:
        groups: dict[float, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in named_parameters:
            groups.setdefault(rate_share(name, config, decay), []).append((name, parameter))
        self._optimizers = {share: Optimizer(members, constants) for share, members in groups.items()}

    def step(self, learning_rate: float, gradient_scale: float = 1.0) -> None:
        """Update all parameters that have a gradient, then clear gradients. `learning_rate` is the head's."""
        for share, optimizer in self._optimizers.items():
            optimizer.step(share * learning_rate, gradient_scale=gradient_scale)

    def state(self) -> dict[str, Tensor]:
        """Return both moments of every parameter, by name (`Optimizer.state`)."""
        return {name: moment for optimizer in self._optimizers.values() for name, moment in optimizer.state().items()}

    def load_state(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Restore the moments after `steps` steps.

        Raises:
            CheckpointError: If a moment is missing or has another shape.
        """
        for optimizer in self._optimizers.values():
            optimizer.load_state(state, steps)


@dataclass(frozen=True, slots=True)
class StepReport:
    """The numbers of one step.

    Attributes:
        step: Steps done, including this one.
        loss: Mean over the targets, in nats (regression: squared error).
        gradient_norm: Global norm before clipping.
        learning_rate: The head's.
        num_tokens: Tokens without padding.
        seconds: Wall-clock time.
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
    """Train, yielding a report after each step. One thread prefetches the next step's batch.

    `optimizer` has done `first_step` steps; `seed` keys data order and dropout; `last_step` is the number of
    steps of the whole training; `autocast` None is fp32.

    Raises:
        TrainingError: If a loss or gradient is not finite; the weights are those before the step.
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
            model.train()  # Evaluation in between leaves it in eval mode.
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
    """Accumulate gradients over the micro-batches, clip and update; return the mean loss and the norm before clipping.

    DEVIATION: ELECTRA's code clips the gradient of the loss summed over the batch (run_finetuning.py:71), so that its
    limit of 1 nearly always applies; here the gradient of the mean is clipped, independent of the batch size.
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
            f"step {step + 1}: the loss is {mean:g} and the gradient norm {norm:g}; training stopped, the weights are "
            "unchanged",
            todo="Lower the learning rate (`--set learning_rate=...`) and use a new --out folder.",
        )
    optimizer.step(learning_rate, gradient_scale=clipping_scale(norm, clip_norm))
    return mean, norm
