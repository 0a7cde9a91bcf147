"""What stands where tokens were selected. To add a replacement: one file, one line in `ReplacementChoice`.

With a second member the choice becomes a union: `Annotated[A | B, Field(discriminator="kind"), ByName]`.
"""

from typing import Annotated

from maskwright.core.spec import ByName
from maskwright.pretext.replacement.base import Replacement, VocabularyFacts
from maskwright.pretext.replacement.mask_random_keep import MaskRandomKeep

ReplacementChoice = Annotated[MaskRandomKeep, ByName]

__all__ = ["MaskRandomKeep", "Replacement", "ReplacementChoice", "VocabularyFacts"]
