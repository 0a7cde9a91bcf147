"""What a run will save: asked before any work, so that no training ends in a model that cannot be written."""

from maskwright.encoder.config import EncoderConfig
from maskwright.interchange.families import family_named
from maskwright.interchange.refusals import refuse_inexpressible
from maskwright.recipes.recipe import Recipe


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
