"""Training operations of a recipe, expected and spent, by the one formula of `encoder.sizes`."""

from maskwright.encoder import sizes
from maskwright.pretext.objectives.base import Objective
from maskwright.recipes.recipe import Recipe
from maskwright.training.batches import StepBatch

_PAIR_CLASSES = 2


def expected_flops_per_token(recipe: Recipe, vocab_size: int) -> float:
    """Return the training FLOPs per real token of full sequences at the recipe's first length.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
    """
    length = recipe.training.phases[0].max_length
    return sizes.flops_per_token(
        recipe.encoder,
        vocab_size,
        length=length,
        targets_per_token=recipe.masking.rate if any(map(_predicts_tokens, recipe.objectives)) else 0.0,
        pair_classes=_pair_classes(recipe),
    )


def step_flops(recipe: Recipe, vocab_size: int, batch: StepBatch) -> float:
    """Return the training FLOPs of a step: real tokens, real lengths, real targets; filler is not counted.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
        batch: The step.
    """
    predicted = sum(batch.counts[objective.kind] for objective in recipe.objectives if _predicts_tokens(objective))
    return batch.num_tokens * sizes.flops_per_token(
        recipe.encoder,
        vocab_size,
        length=batch.squared_lengths / batch.num_tokens,
        targets_per_token=predicted / batch.num_tokens,
        sequences_per_token=batch.num_sequences / batch.num_tokens,
        pair_classes=_pair_classes(recipe),
    )


def _predicts_tokens(objective: Objective) -> bool:
    return objective.predicts == "token"


def _pair_classes(recipe: Recipe) -> int:
    return _PAIR_CLASSES if any(objective.predicts == "sequence" for objective in recipe.objectives) else 0
