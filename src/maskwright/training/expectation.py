"""How many tokens a budget will buy on this machine, before a step is taken."""

from maskwright.encoder.config import EncoderConfig
from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.device import Machine
from maskwright.training.flops import expected_flops_per_token

EFFICIENCY = 0.45
"""Share of the measured matrix-product peak that training reaches on a CPU (measured: see LOG.md)."""


def expected_tokens(budget: Budget, recipe: Recipe, machine: Machine, teacher: EncoderConfig | None = None) -> float:
    """Return how many tokens the budget buys, roughly (the schedule follows real progress, not this number).

    Args:
        budget: Seconds, tokens or FLOPs; how much a step reads is not known here.
        recipe: What is trained; its first phase's length counts.
        machine: Gives the measured peak.
        teacher: The teacher's shape, where there is one.
    """
    each = expected_flops_per_token(recipe, recipe.tokenizer.vocab_size, teacher)
    match budget.unit:
        case "tokens":
            return budget.amount
        case "flops":
            return budget.amount / each
        case "seconds":
            return budget.amount * EFFICIENCY * machine.peak_flops / each
        case "steps":
            raise ValueError("a budget of steps buys what the steps read")
