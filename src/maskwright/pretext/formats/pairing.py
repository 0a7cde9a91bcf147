"""What formats with two texts share: a text from elsewhere, and cutting a pair to its room.

Every draw is one uniform number of the generator, so a procedure can be followed by hand.
"""

from collections.abc import Callable

import numpy as np

from maskwright.core.types import Documents, IntArray

_TRIES = 10  # create_pretraining_data.py:283

NEXT_OR_RANDOM = ("second text: really the next", "second text: a random one")
"""What the labels 0 and 1 of next-sentence prediction mean."""


def draw_integer(random: Callable[[], float], low: int, high: int) -> int:
    """Draw an integer uniformly from low..high, both included."""
    return low + int(random() * (high - low + 1))


class RandomTexts:
    """Texts from other documents (Google's BERT, create_pretraining_data.py:273-300).

    Args:
        documents: The documents to draw from; none may be empty.
    """

    __slots__ = ("_ends", "_first", "_last")

    def __init__(self, documents: Documents) -> None:
        self._ends: IntArray = np.asarray(documents.sentence_ends)
        self._first = documents.first
        self._last = documents.last

    def draw(self, random: Callable[[], float], document: int, wanted: int) -> tuple[int, int]:
        """Draw whole sentences, from a random one of another document on, until they have `wanted` tokens.

        Up to ten tries are made to hit another document; a corpus of one document (or great bad luck) gives
        sentences of the same one. The text may be shorter than wanted where its document ends.

        Returns:
            The token range (start, end), at least one sentence.
        """
        chosen = document
        for _ in range(_TRIES):
            chosen = draw_integer(random, 0, len(self._first) - 1)
            if chosen != document:
                break
        first, last = int(self._first[chosen]), int(self._last[chosen])
        sentence = draw_integer(random, first, last - 1)
        start = int(self._ends[sentence - 1]) if sentence else 0
        # A sentence has at least one token, so no more than `wanted` sentences can be needed.
        window = self._ends[sentence : min(last, sentence + max(wanted, 1))]
        stop = min(int(window.searchsorted(start + wanted)), len(window) - 1)
        return start, int(window[stop])


def cut_pair(
    coins: Callable[[int], IntArray], first: tuple[int, int], second: tuple[int, int], room: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Drop tokens one by one from the longer text (of equal ones the second) until both fit the room.

    Each token leaves from the front or the back with equal probability (create_pretraining_data.py:418-433).
    Which text loses the next token follows from the lengths alone, so all coins are tossed at once.

    Args:
        coins: Gives k uniform numbers in [0, 1); the i-th decides about the i-th token dropped.
        first: Token range of A.
        second: Token range of B; may be empty.
        room: Tokens that A and B may have together.
    """
    first_length, second_length = first[1] - first[0], second[1] - second[0]
    surplus = first_length + second_length - room
    if surplus <= 0:
        return first, second
    from_front = coins(surplus) < 0.5
    # First the longer text shrinks to the other's length; from then on they take turns, B first.
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
