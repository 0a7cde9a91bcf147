"""Pretraining objectives. To add one, write its module and add it to `ObjectiveChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.distillation import Cosine, Relations, SentenceVectors, SoftTargets, TeacherObjective
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.pretext.objectives.pair import NextSentencePrediction, SentenceOrderPrediction
from maskwright.pretext.objectives.replace_mlm import ReplaceMLM
from maskwright.pretext.objectives.rtd import ReplacedTokenDetection
from maskwright.pretext.objectives.sbo import SpanBoundaryObjective

ObjectiveChoice = Annotated[
    Cosine
    | Relations
    | SentenceVectors
    | SoftTargets
    | MaskedLanguageModeling
    | NextSentencePrediction
    | SentenceOrderPrediction
    | ReplaceMLM
    | ReplacedTokenDetection
    | SpanBoundaryObjective,
    Field(discriminator="kind"),
    ByName,
]

__all__ = [
    "Cosine",
    "MaskedLanguageModeling",
    "NextSentencePrediction",
    "Objective",
    "ObjectiveChoice",
    "Relations",
    "ReplaceMLM",
    "ReplacedTokenDetection",
    "SentenceOrderPrediction",
    "SentenceVectors",
    "SoftTargets",
    "SpanBoundaryObjective",
    "TeacherObjective",
]
