"""Texts that hold answers, as tokens that know which characters they cover."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.data.words.scripts import code_points
from maskwright.finetuning.layout import Ranges, ranges_of

NO_ANSWER = -1
"""Offset of tokens at which no answer begins or ends."""


@dataclass(frozen=True, slots=True)
class AnswerTexts:
    """Different texts as one token stream.

    Attributes:
        ids: Shape (T,), int32, no special tokens.
        offsets: Shape (T, 2), int32: the characters [start, end) of its text that each token covers, without the white
            space before them and with combining marks that the tokenizer dropped; `NO_ANSWER` for white space alone.
        tokens: The range of each text in the stream.
        texts: Shape (examples,), which text each example is about.
    """

    ids: IntArray
    offsets: NDArray[np.int32]
    tokens: Ranges
    texts: IntArray

    def spans(self, starts: IntArray, ends: IntArray) -> Ranges:
        """Find the tokens that cover some characters of each example's text, wholly or in part.

        Args:
            starts: Shape (examples,), the first character.
            ends: Shape (examples,), one past the last.

        Returns:
            Ranges of the stream, one an example; empty where no token covers any of the characters.
        """
        covering = np.flatnonzero(self.offsets[:, 0] != NO_ANSWER)
        # The texts are laid one after the other, so that characters ascend over the whole stream for one search.
        width = 1 + int(max(self.offsets.max(initial=0), ends.max(initial=0)))
        text_of_token = np.repeat(np.arange(len(self.tokens.starts)), self.tokens.lengths)[covering]
        token_starts, token_ends = (text_of_token[:, None] * width + self.offsets[covering]).T
        before = self.texts * width
        first = np.searchsorted(token_ends, before + starts, side="right")
        end = np.searchsorted(token_starts, before + ends, side="left")
        found = np.flatnonzero((first < end) & (starts < ends))
        tokens = Ranges(np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64))
        tokens.starts[found] = covering[first[found]]
        tokens.ends[found] = covering[end[found] - 1] + 1
        return tokens


def encode_answer_texts(texts: Sequence[str], tokenizer: Tokenizer) -> AnswerTexts:
    """Encode the texts of all examples, each different one once.

    Args:
        texts: One an example.
        tokenizer: The model's.
    """
    numbers: dict[str, int] = {}
    of_example = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    stream = StreamEncoder(tokenizer, with_places=True).encode(list(numbers))
    assert stream.places is not None
    starts, ends = stream.places.first, stream.places.end
    characters = ranges_of(np.fromiter(map(len, numbers), dtype=np.int64, count=len(numbers)))
    codes = code_points("".join(numbers))
    is_mark = _where(codes, lambda character: unicodedata.category(character).startswith("M"))
    if is_mark.any():
        # A tokenizer that strips accents ends the token of "e" before the mark that is written after it.
        text_ends = np.repeat(characters.ends, stream.lengths)
        places = np.where(is_mark, len(codes), np.arange(len(codes)))
        no_mark = np.append(np.minimum.accumulate(places[::-1])[::-1], len(codes))
        next_starts = np.append(starts[1:], len(codes))
        ends = np.maximum(ends, np.minimum(np.minimum(no_mark[ends], next_starts), text_ends))
    before = np.repeat(characters.starts, stream.lengths)
    is_space = _where(codes, str.isspace)[starts]
    offsets = np.stack([starts - before, ends - before], axis=1)
    return AnswerTexts(
        ids=stream.ids,
        offsets=np.where(is_space[:, None], NO_ANSWER, offsets).astype(np.int32),
        tokens=ranges_of(stream.lengths),
        texts=of_example,
    )


def _where(codes: NDArray[np.uint32], holds: Callable[[str], bool]) -> BoolArray:
    """Tell of each character whether something holds of it; each different one is asked once."""
    table = np.bincount(codes).astype(np.bool_)
    for code in np.flatnonzero(table):
        table[code] = holds(chr(code))
    answers: BoolArray = table[codes]
    return answers
