"""The tokens that a budget buys, by the training FLOPs of `recipes.sizing`."""

from collections.abc import Sequence

from maskwright.fitting.budget import Budget
from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import skipped_flops_per_token
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token

EVALUATIONS = 20
"""Held-out evaluations in a run, evenly spaced over its budget."""
_HELD_OUT_SHARE = 0.005
_HELD_OUT_MIN, _HELD_OUT_MAX = 5_000, 60_000


def planned_skipped_flops_per_token(recipe: Recipe) -> float:
    """Estimate the training FLOPs per token that the last layers skip (see `training.steps.workload.skipped_flops`).

    Only selected tokens count as output positions; first tokens, neighbors of spans and recipes that select most tokens
    are ignored.
    """
    skipped = 0.0
    for config, objectives in recipe.encoders.values():
        predicts = {objective.predicts for objective in objectives}
        if predicts and not any(objective.uses_all_tokens for objective in objectives):
            needed = recipe.masking.rate if "token" in predicts else 0.0
            skipped += (1 - needed) * skipped_flops_per_token(config)
    return skipped


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
        reached_flops: FLOP/s of training on this machine (`speed.measure_speed`); used for a budget of
            seconds, of which held-out evaluations take a part.
    """
    if budget.unit == "tokens":
        return budget.amount
    skipped = planned_skipped_flops_per_token(recipe)

    def per_unit(length: float) -> float:
        """Tokens per step, FLOP or second."""
        if budget.unit == "steps":
            return recipe.training.batch_sequences * length
        flops = training_flops_per_token(recipe, recipe.tokenizer.vocab_size, length=length, teacher=teacher)
        return 1 / flops if budget.unit == "flops" else reached_flops / (flops - skipped)

    phases = zip(recipe.training.phases, lengths, strict=True)
    tokens = budget.amount * sum(phase.share * per_unit(length) for phase, length in phases)
    if budget.unit != "seconds" or not tokens:
        return tokens
    # A forward pass costs a third of a training step.
    return tokens / (1 + EVALUATIONS * held_out_tokens(tokens) / 3 / tokens)


def held_out_tokens(tokens: float) -> int:
    """Return how many tokens a run of so many tokens holds out at most."""
    return int(min(max(_HELD_OUT_SHARE * tokens, _HELD_OUT_MIN), _HELD_OUT_MAX))
