"""How many tokens a budget will buy on this machine, before a step is taken."""

from maskwright.recipes.recipe import Recipe
from maskwright.training.budget import Budget
from maskwright.training.device import Machine
from maskwright.training.flops import flops_per_token

EFFICIENCY = 0.45
"""Share of the measured matrix-product peak that training reaches; measured per machine class in LOG.md."""


def expected_tokens(budget: Budget, recipe: Recipe, vocab_size: int, machine: Machine) -> float:
    """Return how many tokens the budget buys, roughly (the schedule follows real progress, not this number).

    Args:
        budget: What may be spent.
        recipe: What is trained; its first phase's length counts.
        vocab_size: Entries of the vocabulary.
        machine: Gives the measured peak.
    """
    each = flops_per_token(recipe, vocab_size, recipe.training.phases[0].max_length)
    match budget.unit:
        case "tokens":
            return budget.amount
        case "flops":
            return budget.amount / each
        case "seconds":
            return budget.amount * EFFICIENCY * machine.peak_flops / each
        case "steps":
            # The fitted step reads as many tokens as there are steps (see `fit.batch_tokens`).
            return budget.amount**2
