"""Training FLOPs of a recipe, planned and spent, by the formula of `recipes.sizing`."""

from maskwright.model.config import EncoderConfig
from maskwright.model.sizes import skipped_flops_per_token
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.sizing import training_flops_per_token
from maskwright.training.batches import StepBatch
from maskwright.training.model import objectives_by_encoder


def planned_flops_per_token(recipe: Recipe, length: float, teacher: EncoderConfig | None = None) -> float:
    """Return the training FLOPs per real token of sequences of `length` tokens."""
    return training_flops_per_token(recipe, recipe.tokenizer.vocab_size, length=length, teacher=teacher)


def planned_skipped_flops_per_token(recipe: Recipe) -> float:
    """Estimate how many of them the last layers skip (`PretrainingModel.skipped_flops`).

    Only selected tokens count as output positions; first tokens, neighbors of spans and recipes that select most tokens
    are ignored.
    """
    by_encoder = objectives_by_encoder(recipe.objectives, generator=recipe.generator is not None)
    encoders = [(recipe.encoder, by_encoder["encoder"])]
    if recipe.generator is not None:
        encoders.append((recipe.generator.config(recipe.encoder), by_encoder["generator"]))
    skipped = 0.0
    for config, objectives in encoders:
        predicts = {objective.predicts for objective in objectives}
        if predicts and "every_token" not in predicts:
            needed = recipe.masking.rate if "token" in predicts else 0.0
            skipped += (1 - needed) * skipped_flops_per_token(config)
    return skipped


def step_flops(recipe: Recipe, vocab_size: int, batch: StepBatch, teacher: EncoderConfig | None = None) -> float:
    """Return the training FLOPs of a step: real tokens, real lengths, real targets; padding is not counted."""
    return batch.num_tokens * training_flops_per_token(
        recipe,
        vocab_size,
        length=batch.squared_lengths / batch.num_tokens,
        predictions_per_token={kind: count / batch.num_tokens for kind, count in batch.counts.items()},
        sequences_per_token=batch.num_sequences / batch.num_tokens,
        teacher=teacher,
    )
