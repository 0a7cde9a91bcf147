"""How many tokens a budget will buy on this machine, before training begins."""

import math
import time

import torch

from maskwright.core.tensors import FlatBatch, TargetTensors
from maskwright.kernels.setting import native_kernels_enabled, use_native_kernels
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import flops_per_token
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.recipes.optimization import AdamW
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import MicroBatch, StepBatch
from maskwright.training.budget import Budget
from maskwright.training.compiling import compile_model, uses_native_kernels
from maskwright.training.device import Machine
from maskwright.training.flops import expected_flops_per_token, expected_skipped_flops_per_token
from maskwright.training.model import PretrainingModel
from maskwright.training.optimizer import Optimizer
from maskwright.training.step import take_step

_SECONDS = 2.0
_LEAST_STEPS, _MOST_STEPS = 3, 200
_ROW, _ROWS = 64, 16
_ROW_ON_GPU, _ROWS_OF_PROOF = 128, 8
_VOCABULARY = 4096
_PREDICTED = 0.15
"""Share of tokens that are predicted in the step that is timed, BERT's."""


def expected_tokens(budget: Budget, recipe: Recipe, reached: float, teacher: EncoderConfig | None = None) -> float:
    """Return how many tokens the budget buys, roughly (the schedule follows real progress, not this number).

    Args:
        budget: Seconds, tokens or FLOPs; how much a step reads is not known here.
        recipe: What is trained; its first phase's length counts.
        reached: FLOPs a second that training reaches (`reached_flops`).
        teacher: The teacher's shape, where there is one.
    """
    each = expected_flops_per_token(recipe, recipe.tokenizer.vocab_size, teacher)
    match budget.unit:
        case "tokens":
            return budget.amount
        case "flops":
            return budget.amount / each
        case "seconds":
            return budget.amount * reached / (each - expected_skipped_flops_per_token(recipe))
        case "steps":
            raise ValueError("a budget of steps buys what the steps read")


def reached_flops(config: EncoderConfig, machine: Machine) -> float:
    """Time real training steps of an encoder of this shape, and say how many FLOPs a second they reach.

    The steps learn nothing: random tokens, a small vocabulary, plain masked language modelling. The fastest counts, so
    that a machine that is busy for a moment is not taken for a slow one. Takes about two seconds; of a large model at
    least three steps.

    Args:
        config: The encoder's shape.
        machine: Where to train.
    """
    objective = MaskedLanguageModeling()
    model = PretrainingModel(config, _VOCABULARY, (objective,))
    model.initialize(0)
    model.to(machine.device).train()
    optimizer = Optimizer(model.named_parameters(), AdamW())
    drops = config.hidden_dropout > 0 or config.attention_dropout > 0
    row, rows = _ROW, _ROWS
    if machine.device.type == "cuda":
        # A GPU is busy with many tokens only, and a run computes as it will here.
        row = min(_ROW_ON_GPU, config.max_positions)
        rows = machine.tokens_per_microbatch(config.hidden_size) // row
    batch = _random_step(row, rows, drops=drops)
    if machine.device.type == "cuda" and machine.kernels == "auto":
        compile_model(model, _random_step(row, _ROWS_OF_PROOF, drops=drops), machine.autocast)
    with use_native_kernels(native_kernels_enabled() and (machine.device.type == "cpu" or uses_native_kernels(model))):
        best, begun, steps = math.inf, time.perf_counter(), 0
        while steps < _LEAST_STEPS or (time.perf_counter() - begun < _SECONDS and steps < _MOST_STEPS):
            started = time.perf_counter()
            result = take_step(
                model, optimizer, batch, learning_rate=1e-4, clip_norm=1.0, step=steps, autocast=machine.autocast
            )
            if machine.device.type == "cuda":
                torch.cuda.synchronize(machine.device)
            best = min(best, time.perf_counter() - started)
            steps += 1
    head = objective.flops(config.head_shape(_VOCABULARY))
    each = flops_per_token(config, length=row) + 3 * _PREDICTED * head
    return (batch.num_tokens * each - result.skipped_flops) / best


def _random_step(row: int, rows: int, *, drops: bool) -> StepBatch:
    generator = torch.Generator().manual_seed(0)
    slots = row * rows
    predicted = round(_PREDICTED * slots)
    batch = FlatBatch(
        ids=torch.randint(_VOCABULARY, (slots,), generator=generator),
        position_ids=torch.arange(row).repeat(rows),
        segment_ids=torch.zeros(slots, dtype=torch.int64),
        sequence_ids=torch.arange(rows).repeat_interleave(row),
        first_tokens=torch.arange(rows) * row,
        row_length=row,
        num_tokens=slots,
        row_slots=torch.arange(slots),
        num_rows=rows,
        dropout_key=1 if drops else None,
    )
    targets = TargetTensors(
        positions=torch.randperm(slots, generator=generator)[:predicted].sort().values,
        labels=torch.randint(_VOCABULARY, (predicted,), generator=generator),
    )
    return StepBatch(
        micro_batches=(MicroBatch(batch, {"mlm": targets}),),
        counts={"mlm": predicted},
        num_tokens=slots,
        num_sequences=rows,
        num_slots=slots,
        squared_lengths=rows * row**2,
        key="a step that is only timed",
    )
