"""How many tokens a budget will buy on this machine, before a step is taken."""

from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.device import Machine
from maskwright.training.fit import SMALLEST_BATCH
from maskwright.training.flops import expected_flops_per_token

EFFICIENCY = 0.55
"""Share of the measured matrix-product peak that training reaches; measured per machine class in LOG.md."""


def expected_tokens(budget: Budget, recipe: Recipe, vocab_size: int, machine: Machine) -> float:
    """Return how many tokens the budget buys, roughly (the schedule follows real progress, not this number).

    Args:
        budget: What may be spent.
        recipe: What is trained; its first phase's length counts.
        vocab_size: Entries of the vocabulary.
        machine: Gives the measured peak.
    """
    each = expected_flops_per_token(recipe, vocab_size)
    match budget.unit:
        case "tokens":
            return budget.amount
        case "flops":
            return budget.amount / each
        case "seconds":
            return budget.amount * EFFICIENCY * machine.peak_flops / each
        case "steps":
            # The fitted step reads as many tokens as there are steps (see `fit.batch_tokens`), within bounds.
            length = recipe.training.phases[0].max_length
            per_step = max(SMALLEST_BATCH * length, min(budget.amount, recipe.training.batch_sequences * length))
            return budget.amount * per_step
