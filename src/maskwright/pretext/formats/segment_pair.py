"""BERT's and ALBERT's segment pairs, and what pairs of texts share.

Every random choice uses one uniform number of the generator, so a procedure can be followed by hand.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from maskwright.core.types import Documents, IntArray, Plan
from maskwright.pretext.formats.base import Format, PlannedInstances, keyed_documents, sample_integer, without_empty

_TRIES = 10  # create_pretraining_data.py:283

Second = Literal["next_or_random", "next", "next_or_swapped", "next_swapped_or_random"]

NEXT_OR_RANDOM = ("second text: the next one", "second text: a random one")
_IN_ORDER, _SWAPPED = "the two texts in order", "the two texts swapped"


class SegmentPair(Format):
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
    """

    kind: Literal["segment_pair"] = "segment_pair"
    second: Second = "next_or_random"
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @property
    def provides(self) -> frozenset[str]:
        if self.second == "next":
            return frozenset()
        return frozenset({"next_sentence_label" if self.second == "next_or_random" else "order_label"})

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        match self.second:
            case "next_or_random":
                return NEXT_OR_RANDOM
            case "next_or_swapped":
                return _IN_ORDER, _SWAPPED
            case "next_swapped_or_random":
                return _IN_ORDER, f"{_SWAPPED}, or the second a random one"
            case "next":
                return None

    def plan(self, documents: Documents, max_length: int, seed: int, mask_sample: int) -> Plan:
        limit = self._text_length(max_length, num_specials=3, needed=2)
        documents = without_empty(documents)
        rows = PlannedInstances()
        for document, bounds, random in keyed_documents(documents, seed, mask_sample):
            target = limit
            if random() < self.short_share:
                target = sample_integer(random, 2, limit)
            sentence = 0
            while sentence < len(bounds) - 1:
                # The chunk ends with the sentence that reaches the target, or with the document.
                stop = min(bisect_left(bounds, bounds[sentence] + target, lo=sentence + 1), len(bounds) - 1)
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
                if several or label == 1:
                    a, b = cut_pair(random, a, b, limit)
                else:
                    # A single text also has the position of the separator between texts.
                    a, b = cut_pair(random, a, (0, 0), limit + 1)
                rows.add(*a, *b, label)
                sentence = sentence_after
        return rows.plan()


def random_text(documents: Documents, random: Callable[[], float], document: int, wanted: int) -> tuple[int, int]:
    """Return a token range of whole sentences from a random other document, with `wanted` tokens.

    Another document, none of which is empty, is tried ten times, then the same one is used. The text ends with its
    document, and has at least one sentence (bert: create_pretraining_data.py:273-300).
    """
    chosen = document
    for _ in range(_TRIES):
        chosen = sample_integer(random, 0, len(documents) - 1)
        if chosen != document:
            break
    ends, last = np.asarray(documents.sentence_ends), int(documents.last[chosen])
    sentence = sample_integer(random, int(documents.first[chosen]), last - 1)
    start = int(ends[sentence - 1]) if sentence else 0
    # A sentence has at least one token, so no more than `wanted` sentences can be needed.
    window = ends[sentence : min(last, sentence + max(wanted, 1))]
    stop = min(int(window.searchsorted(start + wanted)), len(window) - 1)
    return start, int(window[stop])


def cut_pair(
    random: Callable[[int], IntArray], first: tuple[int, int], second: tuple[int, int], limit: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Drop tokens one by one from the longer text (of equal ones the second) until both have at most `limit` tokens.

    Each is dropped at the front or the back with equal probability (create_pretraining_data.py:418-433).

    Args:
        random: Gives k uniform numbers in [0, 1); the i-th decides about the i-th token dropped.
        first, second: Token ranges; the second may be empty.
    """
    (a, a_end), (b, b_end) = first, second
    surplus = a_end - a + b_end - b - limit
    if surplus <= 0:
        return first, second
    for at_front in (random(surplus) < 0.5).tolist():
        if a_end - a > b_end - b:
            a, a_end = (a + 1, a_end) if at_front else (a, a_end - 1)
        else:
            b, b_end = (b + 1, b_end) if at_front else (b, b_end - 1)
    return (a, a_end), (b, b_end)
