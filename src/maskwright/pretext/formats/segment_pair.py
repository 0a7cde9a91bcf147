"""BERT's layout, and ALBERT's: two stretches of sentences, in order, swapped, or the second from elsewhere."""

from bisect import bisect_left
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from maskwright.core.randomness import generators
from maskwright.core.types import Documents, Plan
from maskwright.pretext.formats.base import PairFormat
from maskwright.pretext.formats.pairing import NEXT_OR_RANDOM, RandomTexts, cut_pair, draw_integer
from maskwright.pretext.formats.rows import PlanRows, sentence_bounds, walk, without_empty

Second = Literal["next_or_random", "next", "next_or_swapped", "next_swapped_or_random"]


class SegmentPair(PairFormat):
    """Pairs of text segments (Devlin et al. 2019, appendix A.2; create_pretraining_data.py:219-340).

    Whole sentences are gathered until they reach a target length, which is drawn once per document. The chunk
    is split after a random sentence; then, half of the time and always where the chunk is one sentence, the
    second part is swapped for a text from another document (label 1) and goes back to be used next. Texts too
    long for the room lose tokens at their ends, see `cut_pair`.

    More than half of all pairs are therefore random ones, and a corpus of one-sentence documents gives no
    others. In a corpus of one document the "random" text comes from that same document and is still labeled
    1, as in Google's code: next-sentence prediction needs a corpus of many documents.

    Attributes:
        second: What the second text is. "next_or_random": as above. "next": always the real continuation, for
            training without next-sentence prediction on the same chunks; a one-sentence chunk stays a single
            text, and no label is given. "next_or_swapped": the real continuation too, but half of the time the
            two texts trade places (label 1; 0 in order), for sentence-order prediction (Lan et al. 2019, 3.1); a
            chunk of one sentence has no order: it stays a single text without a label.
            "next_swapped_or_random": the same as ALBERT's released code has it, where a one-sentence chunk is
            paired with a text from another document and labeled 1 (albert: create_pretraining_data.py:314-337).
        short_share: Share of documents whose target length is drawn from 2..room; elsewhere it is the room.
        num_separators_between: Separators between the texts: 1 (BERT) or 2 (RoBERTa).
    """

    kind: Literal["segment_pair"] = "segment_pair"
    second: Second = "next_or_random"
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @property
    def provides(self) -> frozenset[str]:
        """The label that the choice of the second text gives."""
        match self.second:
            case "next_or_random":
                return frozenset({"next_sentence_label"})
            case "next_or_swapped" | "next_swapped_or_random":
                return frozenset({"order_label"})
            case "next":
                return frozenset()

    @property
    def label_meanings(self) -> tuple[str, str] | None:
        """What the choice of the second text means (see `Format.label_meanings`)."""
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
        """Plan one pass (see `Format.plan`); documents are numbered without the empty ones."""
        room = self.pair_length(max_length)
        documents = without_empty(documents)
        ends = np.asarray(documents.sentence_ends)
        texts = RandomTexts(documents)
        rows = PlanRows()
        keyed = generators(seed, "layout", refresh, len(documents))
        for (document, first, last), rng in zip(walk(documents), keyed, strict=True):
            bounds = sentence_bounds(ends, first, last)
            target = room
            if rng.random() < self.short_share:
                target = draw_integer(rng.random, 2, room)
            if self.second == "next_or_random":
                self._continue_or_jump(bounds, target, room, rng, rows, texts, document)
            else:
                self._continue(bounds, target, room, rng, rows, texts, document)
        return rows.plan()

    def _continue(
        self,
        bounds: list[int],
        target: int,
        room: int,
        rng: np.random.Generator,
        rows: PlanRows,
        texts: RandomTexts,
        document: int,
    ) -> None:
        """Use every chunk up: nothing goes back, since no part of it is left out."""
        sentence = 0
        while sentence < len(bounds) - 1:
            stop = _chunk_end(bounds, sentence, target)
            if stop - sentence > 1:
                split = draw_integer(rng.random, sentence + 1, stop - 1)
                first, second, label = (bounds[sentence], bounds[split]), (bounds[split], bounds[stop]), -1
                if self.second != "next":
                    label = int(rng.random() < 0.5)
                if label == 1:
                    first, second = second, first
                first, second = cut_pair(rng.random, first, second, room)
                rows.add(*first, *second, label)
            elif self.second == "next_swapped_or_random":
                first = (bounds[sentence], bounds[stop])
                second = texts.draw(rng.random, document, target - (first[1] - first[0]))
                first, second = cut_pair(rng.random, first, second, room)
                rows.add(*first, *second, 1)
            else:
                # A single text has all the places that separators between texts would have taken.
                single_room = room + self.num_separators_between
                text, _ = cut_pair(rng.random, (bounds[sentence], bounds[stop]), (0, 0), single_room)
                rows.add(*text)
            sentence = stop

    def _continue_or_jump(
        self,
        bounds: list[int],
        target: int,
        room: int,
        rng: np.random.Generator,
        rows: PlanRows,
        texts: RandomTexts,
        document: int,
    ) -> None:
        sentence = 0
        while sentence < len(bounds) - 1:
            stop = _chunk_end(bounds, sentence, target)
            several = stop - sentence > 1
            split = draw_integer(rng.random, sentence + 1, stop - 1) if several else stop
            first = (bounds[sentence], bounds[split])
            if several and rng.random() >= 0.5:
                second = (bounds[split], bounds[stop])
                label, sentence = 0, stop
            else:
                second = texts.draw(rng.random, document, target - (first[1] - first[0]))
                label, sentence = 1, split
            first, second = cut_pair(rng.random, first, second, room)
            rows.add(*first, *second, label)


def _chunk_end(bounds: list[int], sentence: int, target: int) -> int:
    """One past the sentence with which a chunk reaches the target length, or the document's end."""
    return min(bisect_left(bounds, bounds[sentence] + target, lo=sentence + 1), len(bounds) - 1)
