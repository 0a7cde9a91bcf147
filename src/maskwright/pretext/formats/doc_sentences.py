"""RoBERTa's DOC-SENTENCES: sequences full of sentences of one document."""

from typing import Literal

from maskwright.core.types import Documents, IntArray, Plan
from maskwright.pretext.formats.base import Format
from maskwright.pretext.formats.packing import pack_sentences


class DocSentences(Format):
    """Whole sentences, contiguous, never beyond a document's end (Liu et al. 2019, section 4.2).

    A document's last sequence may be short; the paper makes the batch larger to keep its number of tokens.
    No randomness: every pass has the same sequences.

    DEVIATION: a sentence longer than a sequence is cut into pieces, as in `FullSentences`.

    Attributes:
        separator_after: "document" adds nothing within a sequence; "sentence" follows fairseq, where every
            line of the corpus ends with a separator.
    """

    kind: Literal["doc_sentences"] = "doc_sentences"
    separator_after: Literal["document", "sentence"] = "document"

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one epoch (see `Format.plan`); `seed` and `refresh` change nothing."""
        limit = self._text_length(max_length, num_specials=2, needed=1)
        return pack_sentences(documents, limit, crosses_documents=False, separator_after=self.separator_after)

    def separator_points(self, documents: Documents) -> IntArray:
        """Sentence ends, if each has its separator (see `Format.separator_points`)."""
        if self.separator_after == "sentence":
            return documents.sentence_ends
        return super().separator_points(documents)
