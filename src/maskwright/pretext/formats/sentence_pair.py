"""RoBERTa's SENTENCE-PAIR+NSP: pairs of single natural sentences."""

from typing import Literal

from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import PairFormat
from maskwright.pretext.formats.pairing import NEXT_OR_RANDOM, cut_pair, random_text
from maskwright.pretext.formats.rows import PlannedInstances, keyed_documents, without_empty


class SentencePair(PairFormat):
    """Two sentences, adjacent in a document or from two documents (Liu et al. 2019, section 4.2).

    The paper does not give the order of pairs; this follows BERT's segment pairs with chunks of two sentences. Half of
    the time a sentence is paired with the next one (label 0); otherwise, and always for a document's last sentence,
    with a sentence of another document (label 1), and its successor comes next.

    Sequences are much shorter than the limit; the paper uses larger batches to keep the number of tokens.

    Attributes:
        num_separators_between: Separators between the sentences: 1 (BERT) or 2 (RoBERTa).
    """

    kind: Literal["sentence_pair"] = "sentence_pair"

    @property
    def provides(self) -> frozenset[str]:
        """A next-sentence label."""
        return frozenset({"next_sentence_label"})

    @property
    def label_meanings(self) -> tuple[str, str]:
        """Whether the second sentence is the next one (see `Format.label_meanings`)."""
        return NEXT_OR_RANDOM

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one epoch (see `Format.plan`); documents are numbered without the empty ones."""
        limit = self.pair_length(max_length)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for document, bounds, random in keyed_documents(documents, seed, refresh):
            sentence = 0
            while sentence < len(bounds) - 1:
                first = (bounds[sentence], bounds[sentence + 1])
                if sentence + 2 < len(bounds) and random() >= 0.5:
                    second, label = (bounds[sentence + 1], bounds[sentence + 2]), 0
                    sentence += 2
                else:
                    second, label = random_text(documents, random, document, wanted=1), 1
                    sentence += 1
                first, second = cut_pair(random, first, second, limit)
                rows.add(*first, *second, label)
        return rows.plan()
