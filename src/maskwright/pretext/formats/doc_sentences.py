"""RoBERTa's DOC-SENTENCES: sequences full of sentences of one document."""

from typing import ClassVar, Literal

from maskwright.pretext.formats.packing import PackedSentences


class DocSentences(PackedSentences):
    """Whole sentences, contiguous, never beyond a document's end (Liu et al. 2019, section 4.2).

    A document's last sequence may be short; the paper makes the batch larger to keep its number of tokens.

    DEVIATION: a sentence longer than a sequence is cut into pieces, as in `FullSentences`.
    """

    kind: Literal["doc_sentences"] = "doc_sentences"
    crosses_documents: ClassVar[bool] = False
