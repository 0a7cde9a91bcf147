"""Set text aside for measuring: the beginnings of documents that a keyed draw picks."""

from dataclasses import dataclass

import numpy as np

from maskwright.core.randomness import keys
from maskwright.core.types import Documents

_DOCUMENTS_AT_LEAST = 16


@dataclass(frozen=True, slots=True)
class Split:
    """Documents to train on and documents set aside."""

    train: Documents
    held_out: Documents


def split(documents: Documents, seed: int, share: float = 0.05, most_tokens: int = 60_000) -> Split:
    """Set aside whole sentences from documents in the order of a keyed draw.

    At most a sixteenth of what is wanted comes from one document, so that long documents (books) give their
    beginnings and short ones go whole; what is left of a document is a document of its own in the training text.

    Args:
        documents: All documents.
        seed: The run's seed.
        share: Largest share of all tokens to set aside.
        most_tokens: Most tokens to set aside.

    Returns:
        A partition of all sentences. Nothing is held out where a sixteenth is less than any first sentence.
    """
    limit = int(min(share * documents.num_tokens, most_tokens))
    from_one = max(limit // _DOCUMENTS_AT_LEAST, 1)
    cut = documents.first.astype(np.int64, copy=True)  # Where each document's training part begins.
    left = limit
    for document in np.argsort(keys(seed, "held-out", 0, np.arange(len(documents))), kind="stable").tolist():
        if left <= 0:
            break
        first, last = int(documents.first[document]), int(documents.last[document])
        ends = documents.sentence_ends[first:last] - int(documents.bounds(np.array(first)))
        taken = int(np.searchsorted(ends, min(from_one, left), side="right"))
        if taken:
            cut[document] = first + taken
            left -= int(ends[taken - 1])
    aside, rest = cut > documents.first, cut < documents.last
    return Split(
        train=Documents(documents.sentence_ends, cut[rest], documents.last[rest]),
        held_out=Documents(documents.sentence_ends, documents.first[aside], cut[aside]),
    )
