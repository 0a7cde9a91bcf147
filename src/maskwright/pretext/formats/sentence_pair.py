"""RoBERTa's pairs of single sentences."""

from typing import Literal

from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import Format, PlannedInstances, keyed_documents, without_empty
from maskwright.pretext.formats.segment_pair import NEXT_OR_RANDOM, cut_pair, random_text


class SentencePair(Format):
    """SENTENCE-PAIR+NSP: two sentences, adjacent in a document or from two documents (Liu et al. 2019, section 4.2).

    The paper does not give the order of pairs; this follows BERT's segment pairs with chunks of two sentences. Half of
    the time a sentence is paired with the next one (label 0); otherwise, and always for a document's last sentence,
    with a sentence of another document (label 1), and its successor comes next.

    Sequences are much shorter than the limit; the paper uses larger batches to keep the number of tokens.
    """

    kind: Literal["sentence_pair"] = "sentence_pair"

    @property
    def provides(self) -> frozenset[str]:
        return frozenset({"next_sentence_label"})

    @property
    def label_meanings(self) -> tuple[str, str]:
        return NEXT_OR_RANDOM

    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        limit = self._text_length(max_length, num_specials=3, needed=2)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for document, bounds, random in keyed_documents(documents, seed, mask_sample):
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
