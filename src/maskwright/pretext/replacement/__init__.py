"""Replacements of selected tokens. To add one, write its module and add it to `ReplacementChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts
from maskwright.pretext.replacement.mask_random_keep import MaskRandomKeep
from maskwright.pretext.replacement.similar_word import SimilarWord

ReplacementChoice = Annotated[MaskRandomKeep | SimilarWord, Field(discriminator="kind"), ByName]

__all__ = ["MaskRandomKeep", "Replacement", "ReplacementChoice", "SimilarWord", "VocabularyFacts"]
