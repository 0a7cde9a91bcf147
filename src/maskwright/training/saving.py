"""What a run saves, and whether it can: asked before any work, so that no training ends in what cannot be written."""

from pathlib import Path

from maskwright.core.types import SpecialTokens
from maskwright.huggingface.families import family_named
from maskwright.huggingface.huggingface import save_model
from maskwright.huggingface.refusals import refuse_inexpressible
from maskwright.model.config import EncoderConfig
from maskwright.recipes.recipe import Recipe
from maskwright.training.model import PretrainingModel
from maskwright.training.run_folder import GENERATOR


def check_savable(recipe: Recipe, pad: int) -> None:
    """Refuse a recipe whose models its family's Hugging Face classes cannot hold.

    Args:
        recipe: What is to be trained.
        pad: The padding id.

    Raises:
        ConversionError: With the field, what it could be, and the families that hold it as it is.
    """
    for encoder, heads in _towers(recipe):
        refuse_inexpressible(family_named(recipe.family), encoder, pad, frozenset(heads))


def _towers(recipe: Recipe) -> list[tuple[EncoderConfig, set[str]]]:
    """List the encoders that will be saved, and the kinds of the heads on each."""
    kinds: set[str] = {objective.kind for objective in recipe.objectives}
    if recipe.generator is None:
        return [(recipe.encoder, kinds)]
    on_generator: set[str] = {objective.kind for objective in recipe.objectives if objective.on_generator}
    return [(recipe.encoder, kinds - on_generator), (recipe.generator.config(recipe.encoder), on_generator)]


def save_models(folder: Path, recipe: Recipe, model: PretrainingModel, special_tokens: SpecialTokens) -> None:
    """Write what is trained as transformers reads it, a generator in a folder beside it.

    Args:
        folder: The encoder's; the generator's is its sub-folder `GENERATOR`.
        recipe: What is trained.
        model: Its weights.
        special_tokens: Padding id and vocabulary size.

    Raises:
        DeviceError: If the folder cannot be written.
    """
    models = [(folder, recipe.encoder, model.encoder_weights())]
    if model.generator is not None:
        models.append((folder / GENERATOR, model.generator.config, model.generator_weights()))
    for place, config, state in models:
        save_model(
            place,
            family=recipe.family,
            config=config,
            special_tokens=special_tokens,
            state=state,
            max_length=recipe.training.max_length,
        )
