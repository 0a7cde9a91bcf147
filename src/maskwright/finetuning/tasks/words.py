"""Sentences of words as pieces: each word becomes the pieces that it has in running text, and no piece spans two words.

Words of a language that writes spaces are joined by one: a byte-level BPE's word brings its space along, all but the
first. Characters of Chinese are joined by nothing: a unigram tokenizer's piece then has no "▁", all but the first.
Where words are joined by a space their pieces are those of the running text; where by nothing, runs of Latin letters
and digits give a piece for each character, as where a tokenizer is handed one character at a time.

A sentence that is too long becomes several windows, cut between words. Every word is predicted once. The last window
begins so early that it is full, and what it repeats is context in which nothing is predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tokenizers

from maskwright.core.types import IntArray
from maskwright.data.tokenizers.backends import running_text
from maskwright.data.tokenizers.stream_encoder import StreamEncoder
from maskwright.data.tokenizers.tokenizer import Tokenizer
from maskwright.finetuning.layout import Ranges, ranges_of

Joined = Literal["space", "nothing"]
"""What stands between the words of a sentence."""


@dataclass(frozen=True, slots=True)
class WordPieces:
    """Sentences as one stream of pieces. W words of all sentences, S sentences.

    Attributes:
        ids: Shape (T,), int32.
        words: Tokens of each word; empty ranges for words that give none. W ranges.
        sentences: Words of each sentence. S ranges.
    """

    ids: IntArray
    words: Ranges
    sentences: Ranges


@dataclass(frozen=True, slots=True)
class WordWindows:
    """Sentences cut to windows that fit. U windows.

    Attributes:
        sentences: Shape (U,), ascending; a sentence without any token has no window.
        tokens: Tokens of each window. U ranges of the stream.
        words: The words predicted in each window. U ranges of the words.
    """

    sentences: IntArray
    tokens: Ranges
    words: Ranges


def to_pieces(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, joined: Joined) -> WordPieces:
    """Encode sentences; every distinct word goes through the tokenizer once.

    Args:
        sentences: Words of each.
        tokenizer: The model's.
        joined: What stands between words.
    """
    running = joined == "nothing" and tokenizer.kind == "unigram"
    if running:
        backend = running_text(tokenizers.Tokenizer.from_str(tokenizer.backend.to_str()))
        tokenizer = Tokenizer(backend, tokenizer.special_tokens.names)
    first_space = " " if running else ""
    later_space = " " if tokenizer.kind == "byte_bpe" and joined == "space" else ""
    written = [
        (later_space if place else first_space) + word for words in sentences for place, word in enumerate(words)
    ]
    numbers: dict[str, int] = {}
    which = np.array([numbers.setdefault(word, len(numbers)) for word in written], dtype=np.int64)
    stream = StreamEncoder(tokenizer).encode(list(numbers))
    of_word = ranges_of(stream.lengths).pick(which)
    counts = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    return WordPieces(stream.ids[of_word.tokens], ranges_of(of_word.lengths), ranges_of(counts))


def shortened(pieces: WordPieces, longest: int) -> WordPieces:
    """Cut the ends off words of more than `longest` pieces."""
    kept = pieces.words.first(np.asarray(longest))
    return WordPieces(pieces.ids[kept.tokens], ranges_of(kept.lengths), pieces.sentences)


def to_windows(pieces: WordPieces, room: int) -> WordWindows:
    """Cut sentences into windows of at most `room` tokens.

    Args:
        pieces: No word of which has more than `room` pieces.
        room: Tokens that fit, at least 1.
    """
    starts = np.append(pieces.words.starts, len(pieces.ids))
    first, last = pieces.sentences.starts, pieces.sentences.ends
    begin, end = starts[first], starts[last]
    rows = np.stack([np.arange(len(first)), begin, end, first, last], axis=1)[end > begin]
    too_long = rows[:, 2] - rows[:, 1] > room
    if not too_long.any():
        windows = rows
    else:
        cut = [
            window
            for sentence, token, end, word, last_word in rows[too_long].tolist()
            for window in _cut(sentence, token, end, word, last_word, starts, room)
        ]
        windows = np.concatenate([rows[~too_long], np.array(cut, dtype=np.int64)])
        windows = windows[np.lexsort((windows[:, 3], windows[:, 0]))]
    return WordWindows(windows[:, 0], Ranges(windows[:, 1], windows[:, 2]), Ranges(windows[:, 3], windows[:, 4]))


def _cut(
    sentence: int, token: int, end: int, word: int, last_word: int, starts: IntArray, room: int
) -> list[tuple[int, int, int, int, int]]:
    """Cut one sentence that is too long: (sentence, first token, end, first word predicted, end) of each window."""
    windows = []
    while end - token > room:
        # The last word that begins within the room and ends there too.
        next_word = int(np.searchsorted(starts, token + room, side="right")) - 1
        windows.append((sentence, token, int(starts[next_word]), word, next_word))
        word, token = next_word, int(starts[next_word])
    # Words before it fill the last window up.
    full = int(starts[np.searchsorted(starts, end - room, side="left")])
    windows.append((sentence, full, end, word, last_word))
    return windows
