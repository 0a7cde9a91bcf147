"""Where an answer stands in its context: files say so in other units than characters, wrongly, or not at all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from maskwright.core.types import IntArray
from maskwright.finetuning.examples import Answer

OffsetUnit = Literal["code points", "UTF-16 units", "UTF-8 bytes"]
_NEARBY = 20
"""Characters from the place a file names within which an answer is called found nearby, not elsewhere."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """An answer as a file writes it.

    Attributes:
        text: Its text.
        start: Its offset in whatever unit; None where the file has none.
    """

    text: str
    start: int | None


@dataclass(slots=True)
class AnswerCounts:
    """How the answers of one file were found. Counted up as it is read."""

    found: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, how: str, key: str) -> None:
        """Count one answer, found in this way, of this question."""
        self.found[how] += 1
        self.first.setdefault(how, key)

    def notes(self) -> tuple[str, ...]:
        """Say how many answers were not where the file says."""
        return tuple(
            f"{self.found[how]} answers {words} (first: question {self.first[how]})"
            for how, words in _WORDS.items()
            if self.found[how]
        )


_WORDS = {
    "nearby": f"do not stand where the file says, but within {_NEARBY} characters of it, and are taken there",
    "elsewhere": "do not stand where the file says; the nearest place where they stand is taken",
    "unplaced": "came without their place; the first place where they stand is taken",
    "nowhere": "stand nowhere in their context: they can be scored, but not learnt from",
}


def offset_unit(written: Sequence[tuple[str, WrittenAnswer]]) -> OffsetUnit:
    """Tell in which unit a file counts its offsets, by the answers for which units differ.

    Code points, unless more answers stand where the file says if it counts UTF-16 units (as JavaScript and Java do) or
    bytes, and not if it counts code points, than the other way round.

    Args:
        written: Contexts with answers, all of the file.
    """
    votes: Counter[OffsetUnit] = Counter()
    units: tuple[OffsetUnit, ...] = ("UTF-16 units", "UTF-8 bytes")
    against: Counter[OffsetUnit] = Counter()
    for context, answer in written:
        if answer.start is None or not answer.text or context.isascii():
            continue
        plain = _stands(context, answer.text, answer.start)
        for unit in units:
            start = _to_code_points(context, answer.start, unit)
            if start == answer.start:
                continue
            counted = start is not None and _stands(context, answer.text, start)
            votes[unit] += counted and not plain
            against[unit] += plain and not counted
    best = max(units, key=lambda unit: votes[unit] - against[unit])
    return best if votes[best] > against[best] else "code points"


def place_answer(context: str, written: WrittenAnswer, unit: OffsetUnit, counts: AnswerCounts, key: str) -> Answer:
    """Find an answer in its context.

    Args:
        context: The text.
        written: The answer.
        unit: What its offset counts.
        counts: Takes how it was found.
        key: Its question, for the counts.
    """
    text = written.text
    wanted = None if written.start is None else _to_code_points(context, written.start, unit)
    if wanted is not None and _stands(context, text, wanted):
        return Answer(text=text, start=wanted)
    near = 0 if wanted is None else max(wanted, 0)
    found = _nearest(context, text, near)
    if found is None and (found := _nearest(context, text.strip(), near)) is not None:
        text = text.strip()  # the answer carries white space that its context has not
    if found is None:
        counts.add("nowhere", key)
    elif wanted is None or wanted < 0:
        counts.add("unplaced", key)
    else:
        counts.add("nearby" if abs(found - wanted) <= _NEARBY else "elsewhere", key)
    return Answer(text=text, start=found)


def _stands(context: str, text: str, start: int) -> bool:
    return start >= 0 and context.startswith(text, start)


def _nearest(context: str, text: str, wanted: int) -> int | None:
    """Return the occurrence of a text that begins nearest to a place, the earlier of two; None if there is none."""
    if not text:
        return None
    before = context.rfind(text, 0, wanted + len(text))
    after = context.find(text, wanted)
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: (abs(place - wanted), place), default=None)


def _to_code_points(context: str, offset: int, unit: OffsetUnit) -> int | None:
    """Return an offset in characters; None if it points into a character or behind the text."""
    if unit == "code points" or offset < 0:
        return offset
    begins = _begins(context, unit)
    number = int(np.searchsorted(begins, offset))
    return number if number < len(begins) and begins[number] == offset else None


@lru_cache(maxsize=4)  # answers come paragraph by paragraph
def _begins(context: str, unit: OffsetUnit) -> IntArray:
    """Return where each character of a text, and its end, would be if offsets counted UTF-16 units or bytes."""
    points = np.frombuffer(context.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    widths = np.ones(len(points), dtype=np.int64)
    for least in (0x10000,) if unit == "UTF-16 units" else (0x80, 0x800, 0x10000):
        widths += points >= least
    return np.concatenate([[0], np.cumsum(widths)])
