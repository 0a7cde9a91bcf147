"""How running text becomes sequences. To add a format: one file, one line in `FormatChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.formats.base import Format, PairFormat, TakeTokens
from maskwright.pretext.formats.doc_sentences import DocSentences
from maskwright.pretext.formats.full_sentences import FullSentences
from maskwright.pretext.formats.segment_pair import SegmentPair
from maskwright.pretext.formats.sentence_pair import SentencePair

FormatChoice = Annotated[SegmentPair | SentencePair | FullSentences | DocSentences, Field(discriminator="kind"), ByName]

__all__ = [
    "DocSentences",
    "Format",
    "FormatChoice",
    "FullSentences",
    "PairFormat",
    "SegmentPair",
    "SentencePair",
    "TakeTokens",
]
