"""The schedule of a run by its tokens: batch size, steps, learning rate, warmup, initialization, dropout.

Published schedules have a million steps of hundreds of sequences; a short run with their warmup and batch size learns
nothing. The rules below are two tables, `SIZE_RULES` and `SHORT_RUN_RULES`. The measurements behind the constants are
in LOG.md.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from maskwright.core.text.amounts import pluralize, short_count
from maskwright.fitting.rules import Choice, Rule, apply_rules, is_fixed, round_digits
from maskwright.recipes.optimization import DECAY_SHARE, Training
from maskwright.recipes.recipe import Recipe

RATE_AT_WIDTH_128 = 1e-3
"""Peak learning rate at hidden size 128. It falls as 1/hidden_size above (measured at 128 and 256: LOG.md), and as
2/layers where more than two layers share a block, which all of them then move (measured at 2 and 4)."""
PRE_NORM_WIDTH = 256
"""Hidden size up to which pre-norm encoders have the peak rate that post-norm ones have at 128, and above which it
falls as 1/hidden_size (1e-3 measured at 256, where 2e-3 was worse: LOG.md; other widths are not measured)."""
JOINT_RATE_AT_WIDTH_128 = 7e-4
"""The same with a generator: twice as much stays on the plateau (measured at 128: LOG.md)."""
LARGEST_RATE_FACTOR = 3.0
"""A step of the first phase with k times as many tokens as `batch_tokens` has k times the learning rate, up to this.

A run of as many steps by the rule has a k^2-th of the tokens, so this is the square root that Malladi et al. (2022)
derive for Adam. Measured at k = 1.8 and 3.6, with 2 and 2.8 times the rate, for BERT at hidden size 512 (LOG.md); so
only where each layer has its own block and there is no generator."""
LAMB_RATE = 0.003
LAMB_RATE_SHARED = 0.006
"""Peak learning rate of LAMB if the user sets it in a short run, and the same times the layers that share a block: the
rate is the share by which each matrix moves in a step (measured at 2 layers per block: LOG.md)."""
LAMB_SEQUENCES = 512
"""Below this batch size AdamW replaces LAMB, which is made for larger batches (You et al. 2020 begin at 512); small
runs learn far less with it (LOG.md)."""
INITIALIZER_RANGE_AT_WIDTH_768 = 0.02
"""The published standard deviation of initial weights, chosen at width 768. Narrower models need a wider one for the
same spread of activations, in proportion to 1/sqrt(hidden_size) (measured at 128 and 256: LOG.md)."""
WARMUP_SHARE = 0.1
SMALLEST_BATCH = 8
LONG_BUDGET_TOKENS = 2e9
"""Below this many tokens most sequences are not longer than 128 (BERT itself spends 90 % of its steps there), and
attention starts at neighboring tokens (measured at 1 to 4 M tokens: LOG.md), word embeddings at the tokens' neighbors
(measured at 0.3 to 10 M: LOG.md)."""
FEW_EPOCHS = 6.0
"""Below this many expected epochs there is no dropout (measured at 3 to 4: LOG.md)."""


def batch_tokens(tokens: float) -> float:
    """Return the tokens of a step: half the square root of all tokens.

    Early training is limited by the number of steps, not by their size (LOG.md): 4 M tokens give 4000 steps of 1000.
    The rule agrees with BERT's own budget (128 B tokens: rule 179 k a step, published 131 k at average lengths).
    """
    return math.sqrt(max(tokens, 1.0)) / 2


def fit_batch(
    recipe: Recipe, tokens: float, mean_length: float, fixed: Collection[str], full_step_tokens: float = 0.0
) -> int:
    """Return the sequences per step (see `batch_tokens` and `Speed`), at most the published number."""
    published = recipe.training.batch_sequences
    if is_fixed("training.batch_sequences", fixed):
        return published
    # A fifth more, since the run's sequences may be longer than the random text's that was measured.
    full = _nice(1.2 * full_step_tokens / mean_length)
    return min(published, max(SMALLEST_BATCH, full, _nice(batch_tokens(tokens) / mean_length)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Inputs of the rules of a schedule.

    Attributes:
        recipe: As published, with the user's settings.
        tokens: To train on, not of the corpus.
        steps: Of the run.
        step_tokens: Mean tokens of a step.
        batch: Sequences of a step.
        epochs: Passes over the corpus.
        batch_factor: Tokens of a step, as a multiple of `batch_tokens`.
        full_step_tokens: See `Speed`.
        replaces_optimizer: Whether batches are too small for the optimizer.
    """

    recipe: Recipe
    tokens: float
    steps: int
    step_tokens: float
    batch: int
    epochs: float
    batch_factor: float
    full_step_tokens: float
    replaces_optimizer: bool

    @property
    def published(self) -> Training:
        return self.recipe.training

    @property
    def is_stable_then_decay(self) -> bool:
        """Whether the learning rate is constant until the decay at the end."""
        return self.published.schedule == "warmup_stable_decay"

    @property
    def learning_rate(self) -> float:
        """The peak learning rate of a short run."""
        encoder = self.recipe.encoder
        plans = [encoder.layer_plan(part) for part in ("attention", "ffn")]
        layers_of_a_block = max(plan.count(block) for plan in plans for block in plan)
        if self.published.optimizer.needs_large_batches and not self.replaces_optimizer:
            return round_digits(min(LAMB_RATE, LAMB_RATE_SHARED / layers_of_a_block))
        rate = RATE_AT_WIDTH_128 if self.recipe.generator is None else JOINT_RATE_AT_WIDTH_128
        if self.recipe.generator is None and layers_of_a_block == 1:
            rate *= min(LARGEST_RATE_FACTOR, max(1.0, self.batch_factor))
        width = PRE_NORM_WIDTH if encoder.norm_placement == "pre" else 128
        return round_digits(rate * min(1.0, width / encoder.hidden_size) * min(1.0, 2 / layers_of_a_block))


def _describe_batch(plan: TrainingPlan) -> str:
    enlarged = plan.full_step_tokens > 0 and plan.batch_factor > 1
    return f"about {short_count(plan.step_tokens)} tokens per step, {pluralize(plan.steps, 'step')}" + (
        "; enlarged: such a step takes little longer on this GPU" if enlarged else ""
    )


def _has_few_epochs(plan: TrainingPlan) -> bool:
    return plan.epochs < FEW_EPOCHS


def _describe_epochs(plan: TrainingPlan) -> str:
    return f"no overfitting expected in {plan.epochs:.2g} epochs"


SIZE_RULES: tuple[Rule[TrainingPlan], ...] = (
    Rule("training.batch_sequences", lambda plan: plan.batch, _describe_batch),
    Rule(
        "training.steps", lambda plan: plan.steps, lambda plan: f"{short_count(plan.tokens)} tokens at this batch size"
    ),
)
"""For every run."""

SHORT_RUN_RULES: tuple[Rule[TrainingPlan], ...] = (
    Rule(
        "training.optimizer.kind",
        "adamw",
        "LAMB is made for batches of thousands of sequences",
        lambda plan: plan.replaces_optimizer,
    ),
    Rule(
        "training.decay_share",
        lambda plan: max(DECAY_SHARE, plan.published.decay_share),
        "the decay needs some steps",
        lambda plan: plan.is_stable_then_decay,
    ),
    Rule("training.warmup_steps", lambda plan: round(WARMUP_SHARE * plan.steps), f"{WARMUP_SHARE:.0%} of the budget"),
    Rule("training.learning_rate", lambda plan: plan.learning_rate, "short runs tolerate a higher learning rate"),
    Rule(
        "training.schedule",
        "linear",
        "no jump of the learning rate after warmup",
        lambda plan: not plan.is_stable_then_decay,
    ),
    Rule(
        "training.optimizer.betas",
        lambda plan: (plan.published.optimizer.betas[0], 0.98),
        "second moments averaged over 50 steps, not 1000",
    ),
    Rule(
        "training.clip_norm",
        1.0,
        "a high learning rate needs clipping",
        lambda plan: plan.published.clip_norm == 0 and not plan.published.optimizer.clips_itself,
    ),
    Rule(
        "encoder.initializer_range",
        lambda plan: round_digits(INITIALIZER_RANGE_AT_WIDTH_768 * math.sqrt(768 / plan.recipe.encoder.hidden_size)),
        lambda plan: f"0.02 is for hidden size 768, this is {plan.recipe.encoder.hidden_size}",
    ),
    Rule(
        "encoder.initial_attention",
        "neighbors",
        "short runs learn more if attention starts at neighboring tokens",
        lambda plan: plan.tokens < LONG_BUDGET_TOKENS,
    ),
    Rule(
        "encoder.initial_embeddings",
        "cooccurrence",
        "short runs learn more if similar tokens start near each other",
        lambda plan: plan.tokens < LONG_BUDGET_TOKENS,
    ),
    Rule("encoder.hidden_dropout", 0.0, _describe_epochs, _has_few_epochs),
    Rule("encoder.attention_dropout", 0.0, _describe_epochs, _has_few_epochs),
    Rule("objectives.*.initial_bias", "frequencies", "output bias starts at unigram log-frequencies"),
)
"""For runs with fewer steps than published. If the user sets `training.steps`, none of them applies: that number counts
as published."""

WARMUP_LIMIT: Rule[TrainingPlan] = Rule(
    "training.warmup_steps", lambda plan: min(plan.published.warmup_steps, plan.steps), "the run has no more steps"
)
"""For a warmup that the user set."""


def fit_schedule(
    recipe: Recipe,
    tokens: float,
    corpus_tokens: float,
    mean_lengths: Sequence[float],
    fixed: Collection[str],
    steps: int | None = None,
    full_step_tokens: float = 0.0,
) -> tuple[Recipe, tuple[Choice, ...]]:
    """Fit batch, steps, learning rate, warmup, schedule, initialization and dropout to the tokens of the run.

    `steps` is the budget, if it is in steps; None computes them from `tokens`. `full_step_tokens`: see `Speed`.
    """
    published = recipe.training
    batch = fit_batch(recipe, tokens, mean_lengths[0], fixed, full_step_tokens)
    if steps is None:
        phases = zip(published.phases, mean_lengths, strict=True)
        steps = max(1, round(sum(phase.share * tokens / (batch * length) for phase, length in phases)))
    step_tokens = tokens / steps
    if is_fixed("training.steps", fixed):
        steps = published.steps
    # A rate that the user set is meant for the published optimizer.
    set_by_user = any(is_fixed(f"training.{name}", fixed) for name in ("learning_rate", "optimizer.kind"))
    # By the rule's batch: a larger step does not make LAMB suitable for a short run.
    is_small = fit_batch(recipe, tokens, mean_lengths[0], fixed) < LAMB_SEQUENCES
    plan = TrainingPlan(
        recipe=recipe,
        tokens=tokens,
        steps=steps,
        step_tokens=step_tokens,
        batch=batch,
        epochs=tokens / max(1, corpus_tokens),
        batch_factor=batch / max(SMALLEST_BATCH, batch_tokens(tokens) / mean_lengths[0]),
        full_step_tokens=full_step_tokens,
        replaces_optimizer=published.optimizer.needs_large_batches and is_small and not set_by_user,
    )
    limits: tuple[Choice, ...] = ()
    if is_fixed(WARMUP_LIMIT.field, fixed):
        recipe, limits = apply_rules(recipe, [WARMUP_LIMIT], plan)
    rules = (*SIZE_RULES, *(SHORT_RUN_RULES if steps < published.steps else ()))
    fitted, choices = apply_rules(recipe, rules, plan, fixed)
    return fitted, (*limits, *choices)


def _nice(number: float) -> int:
    """Round down to 2^n or 1.5 x 2^n, so that noise in the measured speed seldom changes it."""
    power = 1 << max(0, math.floor(math.log2(max(number, 1.0))))
    return power + power // 2 if number >= 1.5 * power and power > 1 else power
