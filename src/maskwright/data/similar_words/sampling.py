"""The part of a corpus that words are counted in: all of it, or stretches at equal distances."""

from dataclasses import dataclass

import numpy as np

from maskwright.core.types import BoolArray, IntArray
from maskwright.data.corpus import Corpus

DEFAULT_TOKENS = 8_000_000
"""About 30 MB of English or 20 MB of Chinese; more changes the neighbours of frequent words little."""

_STRETCHES = 1024


@dataclass(frozen=True, slots=True)
class TokenSample:
    """Running text as tokens.

    Attributes:
        ids: Shape (T,), int32.
        word_starts: Shape (T,), True where a token begins a word.
        sentence_ends: Shape (S,), int64, ascending, the last is T: where each sentence ends.
        share: Which share of the corpus's tokens this is.
    """

    ids: IntArray
    word_starts: BoolArray
    sentence_ends: IntArray
    share: float = 1.0


def sample_tokens(corpus: Corpus, most: int = DEFAULT_TOKENS) -> TokenSample:
    """Take whole sentences from all over a corpus: about `most` tokens, or everything if it has no more."""
    ends, total = corpus.documents.sentence_ends, corpus.num_tokens
    if total <= most:
        lows, highs = np.zeros(1, dtype=np.int64), np.full(1, total)
    else:
        stretches = min(_STRETCHES, most)
        length = most // stretches
        begins = np.linspace(0, total - length, stretches).astype(np.int64)
        # From the beginning of the sentence that holds a stretch's first token to the end of that with its last.
        first = np.searchsorted(ends, begins, side="right")
        lows = np.where(first == 0, 0, ends[np.maximum(first - 1, 0)])
        highs = ends[np.searchsorted(ends, begins + length)]
        lows[1:] = np.maximum(lows[1:], highs[:-1])
        lows, highs = lows[lows < highs], highs[lows < highs]
    taken = corpus.take(lows, highs)
    offsets = np.cumsum(highs - lows) - highs
    pieces = [
        ends[np.searchsorted(ends, low, side="right") : np.searchsorted(ends, high) + 1] + offset
        for low, high, offset in zip(lows.tolist(), highs.tolist(), offsets.tolist(), strict=True)
    ]
    return TokenSample(taken.ids, taken.word_starts, np.concatenate(pieces), len(taken.ids) / total)
