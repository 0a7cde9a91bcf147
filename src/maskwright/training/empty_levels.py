"""Levels of units that a masking hides and a text does not hold: masking would pass over them without a word."""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwright.recipes.recipe import Recipe


def empty_levels(recipe: Recipe, levels: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Warn of each level that masking asks for and of which there is no unit: what is done instead, and the remedy.

    Args:
        recipe: What is trained.
        levels: What was found of each level (`text.words.level_facts`).
    """
    for level in sorted(recipe.masking.levels):
        if levels[level]["units"]:
            continue
        share = sum(share for share, masking in recipe.masking.stages if level in masking.levels)
        yield (
            f"no {level} of two words and more was found, and masking {recipe.masking.kind!r} hides single words "
            f"instead, in {share:.0%} of training; {_remedy(recipe, level)}"
        )


def _remedy(recipe: Recipe, level: str) -> str:
    if level == "entity":
        return "name a list of entities, --set words.entities=[names.txt]"
    if "collocations" in recipe.words.phrases:
        return "the corpus is too small to hold its own; name a list of phrases, --set words.phrases=[phrases.txt]"
    return "take those that the corpus itself holds, in any language, --set words.phrases=[collocations] (extra: words)"
