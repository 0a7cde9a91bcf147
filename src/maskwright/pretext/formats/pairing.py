"""Parts of formats with two texts: sampling a text from another document, and truncating a pair.

Every random choice uses one uniform number of the generator, so a procedure can be followed by hand.
"""

from collections.abc import Callable

import numpy as np

from maskwright.core.types import Documents, IntArray

_TRIES = 10  # create_pretraining_data.py:283

NEXT_OR_RANDOM = ("second text: really the next", "second text: a random one")
"""What the labels 0 and 1 of next-sentence prediction mean."""


def sample_integer(random: Callable[[], float], low: int, high: int) -> int:
    """Return a uniform integer from low..high, both included."""
    return low + int(random() * (high - low + 1))


class RandomTexts:
    """Samples texts from other documents, none empty (bert: create_pretraining_data.py:273-300)."""

    def __init__(self, documents: Documents) -> None:
        self._ends: IntArray = np.asarray(documents.sentence_ends)
        self._first = documents.first
        self._last = documents.last

    def sample(self, random: Callable[[], float], document: int, wanted: int) -> tuple[int, int]:
        """Return a token range of whole sentences from a random one of another document, with `wanted` tokens.

        Another document is tried ten times, then the same one is used. The text ends with its document, and has at
        least one sentence.
        """
        chosen = document
        for _ in range(_TRIES):
            chosen = sample_integer(random, 0, len(self._first) - 1)
            if chosen != document:
                break
        first, last = int(self._first[chosen]), int(self._last[chosen])
        sentence = sample_integer(random, first, last - 1)
        start = int(self._ends[sentence - 1]) if sentence else 0
        # A sentence has at least one token, so no more than `wanted` sentences can be needed.
        window = self._ends[sentence : min(last, sentence + max(wanted, 1))]
        stop = min(int(window.searchsorted(start + wanted)), len(window) - 1)
        return start, int(window[stop])


def cut_pair(
    coins: Callable[[int], IntArray], first: tuple[int, int], second: tuple[int, int], limit: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Drop tokens one by one from the longer text (of equal ones the second) until both have at most `limit` tokens.

    Each is dropped at the front or the back with equal probability (create_pretraining_data.py:418-433). Which text
    loses the next token follows from the lengths, so all random numbers are computed at once.

    Args:
        coins: Gives k uniform numbers in [0, 1); the i-th decides about the i-th token dropped.
        first, second: Token ranges; the second may be empty.
    """
    first_length, second_length = first[1] - first[0], second[1] - second[0]
    surplus = first_length + second_length - limit
    if surplus <= 0:
        return first, second
    from_front = coins(surplus) < 0.5
    # First the longer text shrinks to the other's length; then they alternate, B first.
    levelling = min(abs(first_length - second_length), surplus)
    first_turns, second_turns = from_front[levelling + 1 :: 2], from_front[levelling::2]
    if first_length > second_length:
        first_turns = np.concatenate([from_front[:levelling], first_turns])
    else:
        second_turns = np.concatenate([from_front[:levelling], second_turns])
    return _shrunk(first, first_turns), _shrunk(second, second_turns)


def _shrunk(text: tuple[int, int], from_front: IntArray) -> tuple[int, int]:
    front = int(np.count_nonzero(from_front))
    return text[0] + front, text[1] - (len(from_front) - front)
