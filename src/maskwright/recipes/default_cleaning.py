"""How text is cleaned for a recipe, where the user does not say."""

from maskwright.data.cleaning.text import Cleaning
from maskwright.recipes.recipe import Recipe


def default_cleaning(recipe: Recipe) -> Cleaning:
    """Return the usual cleaning, or for a format that reads lines one that leaves them as they were written.

    A turn of a dialogue that stood elsewhere too ("What can I do for you?") is not taken out as a repeat: all turns
    after it would change their roles. A whole dialogue that comes again still is.
    """
    if recipe.format.sentences_are_lines:
        return Cleaning(line_breaks="sentence", deduplicate="documents")
    return Cleaning()
