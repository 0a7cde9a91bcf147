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
    coins: Callable[[int], IntArray], first: tuple[int, int], second: tuple[int, int], limit: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Drop tokens one by one from the longer text (of equal ones the second) until both have at most `limit` tokens.

    Each is dropped at the front or the back with equal probability (create_pretraining_data.py:418-433).

    Args:
        coins: Gives k uniform numbers in [0, 1); the i-th decides about the i-th token dropped.
        first, second: Token ranges; the second may be empty.
    """
    (a, a_end), (b, b_end) = first, second
    surplus = a_end - a + b_end - b - limit
    if surplus <= 0:
        return first, second
    for at_front in (coins(surplus) < 0.5).tolist():
        if a_end - a > b_end - b:
            a, a_end = (a + 1, a_end) if at_front else (a, a_end - 1)
        else:
            b, b_end = (b + 1, b_end) if at_front else (b, b_end - 1)
    return (a, a_end), (b, b_end)
