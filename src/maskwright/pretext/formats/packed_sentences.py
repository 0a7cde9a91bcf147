"""FULL-SENTENCES and DOC-SENTENCES, RoBERTa's two best formats: whole sentences, in order, without randomness."""

from typing import ClassVar, Literal

import numpy as np

from maskwright.core.types import Documents, IntArray, Plan
from maskwright.pretext.formats.base import Format, PlannedInstances, walk, without_empty


class PackedSentences(Format):
    """As many whole sentences in each sequence as fit. No randomness: every epoch has the same sequences.

    A sentence longer than a sequence begins one, fills whole sequences, and its remainder begins the next one.
    Sequences only join documents that are adjacent in the token stream, so a subset of a corpus is packed without the
    text between.

    Attributes:
        crosses_documents: Whether a sequence may continue into the next document.
        separator_after: Where a sequence has inner separators: after every "document", or after every "sentence" as in
            fairseq, where every line of the corpus ends with a separator.
    """

    crosses_documents: ClassVar[bool]
    separator_after: Literal["document", "sentence"] = "document"

    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        """Plan one epoch (see `Format.plan`); `seed` and `mask_sample` change nothing."""
        limit = self._text_length(max_length, num_specials=2, needed=1)
        documents = without_empty(documents)
        ends = np.asarray(documents.sentence_ends)
        rows = PlannedInstances()
        row_start = row_end = used = 0  # the open row: its token range, and positions used in it (0: no open row)

        def close() -> None:
            nonlocal used
            if used:
                rows.add(row_start, row_end)
            used = 0

        for _, first, last in walk(documents):
            start = int(ends[first - 1]) if first else 0
            if not self.crosses_documents or start != row_end:
                close()
            for number, end in enumerate(ends[first:last].tolist()):
                joint = int(used > 0 and (number == 0 or self.separator_after == "sentence"))
                if used + joint + end - start > limit:
                    close()
                    joint = 0
                while end - start > limit:
                    rows.add(start, start + limit)
                    start += limit
                if not used:
                    row_start = start
                used += joint + end - start
                row_end = start = end
        close()
        return rows.plan()

    def separator_points(self, documents: Documents) -> IntArray:
        """Sentence ends, or the document ends within sequences (see `Format.separator_points`)."""
        if self.separator_after == "sentence":
            return documents.sentence_ends
        return np.unique(documents.bounds(documents.last)) if self.crosses_documents else np.zeros(0, dtype=np.int64)


class FullSentences(PackedSentences):
    """Whole sentences, contiguous in the corpus, across document ends (Liu et al. 2019, section 4.2).

    Where a document ends within a sequence, one extra separator precedes the next document's sentences.

    DEVIATION: a sentence longer than a sequence is cut into pieces; fairseq's "complete" mode
    (token_block_utils_fast.pyx:64-97) keeps it whole, beyond the length limit.
    """

    kind: Literal["full_sentences"] = "full_sentences"
    crosses_documents: ClassVar[bool] = True


class DocSentences(PackedSentences):
    """Whole sentences, contiguous, never beyond a document's end (Liu et al. 2019, section 4.2).

    A document's last sequence may be short; the paper makes the batch larger to keep its number of tokens.

    DEVIATION: a sentence longer than a sequence is cut into pieces, as in `FullSentences`.
    """

    kind: Literal["doc_sentences"] = "doc_sentences"
    crosses_documents: ClassVar[bool] = False
