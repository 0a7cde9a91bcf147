"""Input formats: from documents to sequences. To add one, write its module and add it to `FormatChoice`."""

from typing import Annotated

from pydantic import Field

from maskwright.core.spec import ByName
from maskwright.pretext.formats.base import Format, GatherTokens
from maskwright.pretext.formats.contiguous_halves import ContiguousHalves
from maskwright.pretext.formats.packed_sentences import DocSentences, FullSentences
from maskwright.pretext.formats.segment_pair import SegmentPair
from maskwright.pretext.formats.sentence_pair import SentencePair

FormatChoice = Annotated[
    SegmentPair | SentencePair | FullSentences | DocSentences | ContiguousHalves,
    Field(discriminator="kind"),
    ByName,
]

__all__ = [
    "ContiguousHalves",
    "DocSentences",
    "Format",
    "FormatChoice",
    "FullSentences",
    "GatherTokens",
    "SegmentPair",
    "SentencePair",
]
