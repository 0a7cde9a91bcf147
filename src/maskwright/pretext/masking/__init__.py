"""Masking: selection of the tokens to predict. To add a strategy, write its module and add it to `MaskingChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.masking.knowledge import KnowledgeMasking
from maskwright.pretext.masking.ngram import NgramMasking
from maskwright.pretext.masking.pmi import PMIMasking
from maskwright.pretext.masking.span import SpanMasking
from maskwright.pretext.masking.token import TokenMasking
from maskwright.pretext.masking.whole_word import WholeWordMasking

MaskingChoice = Annotated[
    TokenMasking | WholeWordMasking | NgramMasking | SpanMasking | KnowledgeMasking | PMIMasking,
    Field(discriminator="kind"),
    ByName,
]

__all__ = [
    "KnowledgeMasking",
    "Masking",
    "MaskingChoice",
    "NgramMasking",
    "PMIMasking",
    "SpanMasking",
    "TokenMasking",
    "WholeWordMasking",
]
