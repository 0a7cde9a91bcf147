"""Training operations of a recipe, expected and spent, by the one formula of `recipes.sizing`."""

from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import skipped_flops_per_token
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.training.batches import StepBatch
from maskwright.training.towers import objectives_by_tower


def expected_flops_per_token(recipe: Recipe, vocab_size: int, teacher: EncoderConfig | None = None) -> float:
    """Return the training FLOPs per real token of full sequences at the recipe's first length.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
        teacher: The teacher's shape, where there is one.
    """
    length = recipe.training.phases[0].max_length
    return training_flops_per_token(recipe, vocab_size, length=length, teacher=teacher)


def expected_skipped_flops_per_token(recipe: Recipe) -> float:
    """Return what the last layers spare of it (`PretrainingModel.skipped_flops`), roughly.

    Selected tokens are counted as read where an objective predicts them; first tokens, a span's neighbours and recipes
    that select most tokens are not.

    Args:
        recipe: What is trained.
    """
    on_encoder, on_generator = objectives_by_tower(recipe.objectives, generator=recipe.generator is not None)
    towers = [(recipe.encoder, on_encoder)]
    if recipe.generator is not None:
        towers.append((recipe.generator.config(recipe.encoder), on_generator))
    skipped = 0.0
    for config, asked in towers:
        predicts = {objective.predicts for objective in asked}
        if predicts and "every_token" not in predicts:
            read = recipe.masking.rate if "token" in predicts else 0.0
            skipped += (1 - read) * skipped_flops_per_token(config)
    return skipped


def step_flops(recipe: Recipe, vocab_size: int, batch: StepBatch, teacher: EncoderConfig | None = None) -> float:
    """Return the training FLOPs of a step: real tokens, real lengths, real targets; filler is not counted.

    Args:
        recipe: What is trained.
        vocab_size: Entries of the vocabulary.
        batch: The step.
        teacher: The teacher's shape, where there is one.
    """
    return batch.num_tokens * training_flops_per_token(
        recipe,
        vocab_size,
        length=batch.squared_lengths / batch.num_tokens,
        predictions_per_token={kind: count / batch.num_tokens for kind, count in batch.counts.items()},
        sequences_per_token=batch.num_sequences / batch.num_tokens,
        teacher=teacher,
    )
