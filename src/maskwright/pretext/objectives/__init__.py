"""What is asked back. To add an objective: one file, one line in `ObjectiveChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.objectives.base import Objective
from maskwright.pretext.objectives.cosine import Cosine
from maskwright.pretext.objectives.dlm import DialogueJudgement
from maskwright.pretext.objectives.mlm import MaskedLanguageModeling
from maskwright.pretext.objectives.nsp import NextSentencePrediction
from maskwright.pretext.objectives.rtd import ReplacedTokenDetection
from maskwright.pretext.objectives.sbo import SpanBoundaryObjective
from maskwright.pretext.objectives.soft_targets import SoftTargets
from maskwright.pretext.objectives.sop import SentenceOrderPrediction

ObjectiveChoice = Annotated[
    Cosine
    | SoftTargets
    | MaskedLanguageModeling
    | NextSentencePrediction
    | SentenceOrderPrediction
    | ReplacedTokenDetection
    | SpanBoundaryObjective
    | DialogueJudgement,
    Field(discriminator="kind"),
    ByName,
]

__all__ = [
    "Cosine",
    "DialogueJudgement",
    "MaskedLanguageModeling",
    "NextSentencePrediction",
    "Objective",
    "ObjectiveChoice",
    "ReplacedTokenDetection",
    "SentenceOrderPrediction",
    "SoftTargets",
    "SpanBoundaryObjective",
]
