"""BERT's and ALBERT's layout: two segments, in order, swapped, or the second from another document."""

from bisect import bisect_left
from typing import Annotated, Literal

from pydantic import Field

from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import PairFormat
from maskwright.pretext.formats.pairing import NEXT_OR_RANDOM, cut_pair, random_text, sample_integer
from maskwright.pretext.formats.rows import PlannedInstances, keyed_documents, without_empty

Second = Literal["next_or_random", "next", "next_or_swapped", "next_swapped_or_random"]


class SegmentPair(PairFormat):
    """Pairs of text segments (Devlin et al. 2019, appendix A.2; create_pretraining_data.py:219-340).

    Whole sentences are gathered until they reach a target length, which is sampled once per document. The chunk
    is split after a random sentence; then, half of the time and always where the chunk is one sentence, the
    second part is replaced by a text from another document (label 1) and is returned to the input. Texts too
    long for the limit lose tokens at their ends, see `cut_pair`.

    More than half of all pairs are therefore random ones, and a corpus of one-sentence documents gives no
    others. In a corpus of one document the "random" text comes from that same document and is still labeled
    1, as in Google's code: next-sentence prediction needs a corpus of many documents.

    | `second` | chunk of several sentences | chunk of one sentence |
    | --- | --- | --- |
    | `next_or_random` (BERT) | half the time in order (0), half a random text (1) | a random text (1) |
    | `next` | in order, no label | single text, no label |
    | `next_or_swapped` (Lan et al. 2019, 3.1) | half in order (0), half swapped (1) | single text, no label |
    | `next_swapped_or_random` (ALBERT's code) | half in order (0), half swapped (1) | a random text (1) |

    The label is in parentheses. `next` trains without a pair objective on the same chunks; one-sentence chunks have
    no order. ALBERT's code: create_pretraining_data.py:314-337.

    Attributes:
        second: What the second text is (see the table).
        short_share: Share of documents whose target length is sampled from 2..limit; elsewhere it is the limit.
        num_separators_between: Separators between the texts: 1 (BERT) or 2 (RoBERTa).
    """

    kind: Literal["segment_pair"] = "segment_pair"
    second: Second = "next_or_random"
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @property
    def provides(self) -> frozenset[str]:
        """The label that `second` gives."""
        match self.second:
            case "next_or_random":
                return frozenset({"next_sentence_label"})
            case "next_or_swapped" | "next_swapped_or_random":
                return frozenset({"order_label"})
            case "next":
                return frozenset()

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        """See `Format.label_meanings`."""
        match self.second:
            case "next_or_random":
                return NEXT_OR_RANDOM
            case "next_or_swapped":
                return "the two texts in order", "the two texts swapped"
            case "next_swapped_or_random":
                return "the two texts in order", "the two texts swapped, or the second a random one"
            case "next":
                return None

    def plan(self, documents: Documents, max_length: int, seed: int, refresh: int) -> Plan:
        """Plan one epoch (see `Format.plan`); documents are numbered without the empty ones."""
        limit = self.pair_length(max_length)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for document, bounds, random in keyed_documents(documents, seed, refresh):
            target = limit
            if random() < self.short_share:
                target = sample_integer(random, 2, limit)
            sentence = 0
            while sentence < len(bounds) - 1:
                stop = _chunk_end(bounds, sentence, target)
                several = stop - sentence > 1
                split = sample_integer(random, sentence + 1, stop - 1) if several else stop
                a, b = (bounds[sentence], bounds[split]), (bounds[split], bounds[stop])
                label, sentence_after = -1, stop
                if self.second == "next_or_random":
                    label = int(not several or random() < 0.5)
                    if label:
                        # The unused part of the chunk is used next.
                        b = random_text(documents, random, document, target - (a[1] - a[0]))
                        sentence_after = split
                elif several and self.second != "next":
                    label = int(random() < 0.5)
                    if label:
                        a, b = b, a
                elif not several and self.second == "next_swapped_or_random":
                    b, label = random_text(documents, random, document, target - (a[1] - a[0])), 1
                # A single text also has the positions of separators between texts.
                has_pair = several or label == 1
                if not has_pair:
                    b = (0, 0)
                a, b = cut_pair(random, a, b, limit if has_pair else limit + self.num_separators_between)
                rows.add(*a, *b, label)
                sentence = sentence_after
        return rows.plan()


def _chunk_end(bounds: list[int], sentence: int, target: int) -> int:
    """Return one past the sentence with which a chunk reaches the target length, or the document's end."""
    return min(bisect_left(bounds, bounds[sentence] + target, lo=sentence + 1), len(bounds) - 1)
