"""What is asked back. To add an objective: one file, one line in `ObjectiveChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.pretext.objectives.nsp import NextSentencePrediction

ObjectiveChoice = Annotated[MaskedLanguageModeling | NextSentencePrediction, Field(discriminator="kind"), ByName]

__all__ = ["MaskedLanguageModeling", "NextSentencePrediction", "Objective", "ObjectiveChoice"]
