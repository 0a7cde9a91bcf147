"""How many tokens a budget will buy on this machine, before training begins."""

import contextlib
import statistics
import time
from collections.abc import Sequence

import torch

from maskwright.core.tensors import PackedBatch, TargetTensors
from maskwright.kernels.setting import kernels_enabled, use_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import flops_per_token
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.optimization import AdamW
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import MicroBatch, StepBatch
from maskwright.training.budget import Budget
from maskwright.training.compiling import check_kernels
from maskwright.training.contention import SpinControl
from maskwright.training.device import Machine
from maskwright.training.flops import planned_flops_per_token, planned_skipped_flops_per_token
from maskwright.training.model import PretrainingModel
from maskwright.training.optimizer import Optimizer
from maskwright.training.step import take_step

_SECONDS = 2.0
_LEAST_STEPS, _MOST_STEPS = 3, 200
_LENGTH, _SEQUENCES = 64, 16
_LENGTH_ON_GPU, _CHECKED_SEQUENCES = 128, 8
_VOCABULARY = 4096
_PREDICTED = 0.15
"""Share of tokens that the timed step predicts, as in BERT."""


def expected_tokens(
    budget: Budget,
    recipe: Recipe,
    lengths: Sequence[float],
    reached_flops: float = 0.0,
    teacher: EncoderConfig | None = None,
) -> float:
    """Estimate the tokens that a budget buys; each length phase gets its share of the budget.

    Args:
        lengths: Mean tokens of a sequence in each phase.
        reached_flops: FLOP/s of training on this machine; used for a budget of seconds.
        teacher: The teacher's shape, if there is one.
    """
    if budget.unit == "tokens":
        return budget.amount
    skipped = planned_skipped_flops_per_token(recipe)

    def per_unit(length: float) -> float:
        """Tokens per step, FLOP or second."""
        if budget.unit == "steps":
            return recipe.training.batch_sequences * length
        flops = planned_flops_per_token(recipe, length, teacher)
        return 1 / flops if budget.unit == "flops" else reached_flops / (flops - skipped)

    phases = recipe.training.phases
    return budget.amount * sum(phase.share * per_unit(length) for phase, length in zip(phases, lengths, strict=True))


def measure_training_flops(config: EncoderConfig, machine: Machine) -> tuple[float, bool]:
    """Time training steps of an encoder of this shape for about two seconds.

    The steps use random tokens, a small vocabulary and plain masked language modeling.

    Returns:
        FLOP/s of the fastest step, or the median while other processes keep the cores busy; and whether they do.
    """
    objective = MaskedLanguageModeling()
    model = PretrainingModel(config, _VOCABULARY, (objective,))
    model.initialize(0)
    model.to(machine.device).train()
    optimizer = Optimizer(model.named_parameters(), AdamW())
    drops = config.hidden_dropout > 0 or config.attention_dropout > 0
    length, sequences = _LENGTH, _SEQUENCES
    if machine.device.type == "cuda":
        # Only many tokens keep a GPU busy.
        length = min(_LENGTH_ON_GPU, config.max_positions)
        sequences = machine.tokens_per_microbatch(config.hidden_size) // length
    batch = _random_step(length, sequences, drops=drops)
    enabled = kernels_enabled()
    if machine.device.type == "cuda" and machine.kernels == "auto":
        enabled &= check_kernels(model, _random_step(length, _CHECKED_SEQUENCES, drops=drops), machine.autocast).passed
    with use_kernels(enabled), contextlib.closing(SpinControl()) as spinning:
        begun, seconds, is_busy = time.perf_counter(), list[float](), False
        while len(seconds) < _LEAST_STEPS or (time.perf_counter() - begun < _SECONDS and len(seconds) < _MOST_STEPS):
            started = time.perf_counter()
            result = take_step(
                model, optimizer, batch, learning_rate=1e-4, clip_norm=1.0, step=len(seconds), autocast=machine.autocast
            )
            if machine.device.type == "cuda":
                torch.cuda.synchronize(machine.device)
            seconds.append(time.perf_counter() - started)
            if spinning.check() and not is_busy and machine.device.type == "cpu":
                is_busy, begun = True, time.perf_counter()
                seconds.clear()  # From here on as in training.
    head = objective.flops(config.head_shape(_VOCABULARY))
    per_token = flops_per_token(config, length=length) + 3 * _PREDICTED * head
    flops = batch.num_tokens * per_token - result.skipped_flops
    return flops / (statistics.median(seconds) if is_busy else min(seconds)), is_busy


def _random_step(length: int, sequences: int, *, drops: bool) -> StepBatch:
    generator = torch.Generator().manual_seed(0)
    tokens = length * sequences
    predicted = round(_PREDICTED * tokens)
    batch = PackedBatch(
        ids=torch.randint(_VOCABULARY, (tokens,), generator=generator),
        position_ids=torch.arange(length).repeat(sequences),
        segment_ids=torch.zeros(tokens, dtype=torch.int64),
        cu_seqlens=torch.arange(0, tokens + 1, length, dtype=torch.int32),
        max_seqlen=length,
        dropout_key=1 if drops else None,
    )
    targets = TargetTensors(
        positions=torch.randperm(tokens, generator=generator)[:predicted].sort().values,
        labels=torch.randint(_VOCABULARY, (predicted,), generator=generator),
    )
    return StepBatch(
        micro_batches=(MicroBatch(batch, {"mlm": targets}),),
        counts={"mlm": predicted},
        num_tokens=tokens,
        num_sequences=sequences,
        squared_lengths=sequences * length**2,
        key="timing",
    )
