"""Whole sentences packed across document boundaries (FULL-SENTENCES)."""

from typing import ClassVar, Literal

from maskwright.pretext.formats.packing import PackedSentences


class FullSentences(PackedSentences):
    """Whole sentences, contiguous in the corpus, across document ends (Liu et al. 2019, section 4.2).

    Where a document ends within a sequence, one extra separator precedes the next document's sentences.

    DEVIATION: a sentence longer than a sequence is cut into pieces; fairseq's "complete" mode
    (token_block_utils_fast.pyx:64-97) keeps it whole, beyond the length limit.
    """

    kind: Literal["full_sentences"] = "full_sentences"
    crosses_documents: ClassVar[bool] = True
