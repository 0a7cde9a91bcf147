"""Packing of whole sentences, in order, without randomness (RoBERTa's two best formats)."""

from typing import Literal

import numpy as np

from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.rows import PlannedInstances, walk, without_empty


def pack_sentences(
    documents: Documents,
    limit: int,
    *,
    crosses_documents: bool,
    separator_after: Literal["document", "sentence"],
) -> Plan:
    """Put as many whole sentences into each row as fit.

    A sentence longer than the limit begins a row, fills whole rows, and its remainder begins the next one. Rows only
    join documents that are adjacent in the token stream, so a subset of a corpus is packed without the text between.

    Args:
        limit: Tokens per row, without the classification token and the final separator.
        crosses_documents: Whether a row may continue into the next document.
        separator_after: Where a row has inner separators: between documents, or after every sentence.
    """
    documents = without_empty(documents)
    ends = np.asarray(documents.sentence_ends)
    every_sentence = separator_after == "sentence"
    rows = PlannedInstances()
    row_start = row_end = used = 0  # the open row: its token range, and places taken in it (0: no open row)

    def close() -> None:
        nonlocal used
        if used:
            rows.add(row_start, row_end)
        used = 0

    for _, sentence, last in walk(documents):
        position = int(ends[sentence - 1]) if sentence else 0
        if not crosses_documents or position != row_end:
            close()
        while sentence < last:
            joint = 1 if used else 0  # an open row is continued after a document's end only
            free = limit - used - joint
            window = ends[sentence : sentence + min(last - sentence, max(free, 0))]
            if every_sentence:
                window = window + np.arange(len(window))
            fitting = int(window.searchsorted(position + free, side="right"))
            if fitting:
                if not used:
                    row_start = position
                row_end = int(ends[sentence + fitting - 1])
                used += joint + row_end - position + (fitting - 1 if every_sentence else 0)
                position = row_end
                sentence += fitting
                if sentence < last:
                    close()
            elif used:
                close()
            else:
                rows.add(position, position + limit)
                position += limit
    close()
    return rows.plan()
