"""Whole sentences packed across document boundaries (FULL-SENTENCES)."""

from typing import Literal

import numpy as np

from maskwright.core.types import Documents, IntArray, Plan
from maskwright.pretext.formats.base import Format
from maskwright.pretext.formats.packing import pack_sentences


class FullSentences(Format):
    """Whole sentences, contiguous in the corpus, across document ends (Liu et al. 2019, section 4.2).

    Where a document ends within a sequence, one extra separator precedes the next document's sentences.
    No randomness: every epoch has the same sequences.

    DEVIATION: a sentence longer than a sequence is cut into pieces; fairseq's "complete" mode
    (token_block_utils_fast.pyx:64-97) keeps it whole, beyond the length limit.

    Attributes:
        separator_after: "document" follows the paper. "sentence" follows fairseq, where every line of the
            corpus ends with a separator.
    """

    kind: Literal["full_sentences"] = "full_sentences"
    separator_after: Literal["document", "sentence"] = "document"

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one epoch (see `Format.plan`); `seed` and `refresh` change nothing."""
        limit = self._text_length(max_length, num_specials=2, needed=1)
        return pack_sentences(documents, limit, crosses_documents=True, separator_after=self.separator_after)

    def separator_points(self, documents: Documents) -> IntArray:
        """Document ends or sentence ends (see `Format.separator_points`)."""
        if self.separator_after == "sentence":
            return documents.sentence_ends
        return np.unique(documents.bounds(documents.last))
