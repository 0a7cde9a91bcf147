"""Phrases and entities given with the documents, mapped through cleaning.

A .jsonl record may have `"spans": [[start, end, "entity"], ...]` or objects with `start`, `end` and `label`, in
characters of the record's text. Cleaning moves characters, so the bounds are marked in a copy of the text, the copy is
cleaned, and the marks are located. If marks would change the cleaning, the spans' texts are searched for in order.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.data.cleaning.text import Cleaning, clean_document
from maskwright.data.words.spec import SpanKind

SPAN_KINDS: tuple[str, ...] = get_args(SpanKind)
"""Kinds of spans by number, as stored."""

# Private-use characters, which cleaning neither removes nor composes with others.
_MARKS = range(0xF0000, 0xF0100)


class GivenSpan(NamedTuple):
    """A phrase or an entity: characters [start, end) of a raw text and the kind."""

    start: int
    end: int
    kind: str


def read_spans(value: Any, text: str) -> list[GivenSpan]:
    """Check and return the spans in a record's field `spans`, None for none; ValueError if they are invalid."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"the field 'spans' is not a list but {type(value).__name__}")
    return [_span(item, text, number) for number, item in enumerate(value)]


def _span(item: Any, text: str, number: int) -> GivenSpan:
    where = f"span {number} of the field 'spans'"
    values = [item.get(name) for name in ("start", "end", "label")] if isinstance(item, dict) else item
    if not (isinstance(values, list) and len(values) == 3):
        raise ValueError(f'{where} is {item!r}, not [start, end, label] or {{"start", "end", "label"}}')
    start, end, label = values
    if label not in SPAN_KINDS:
        raise ValueError(f"{where} has the label {label!r}; allowed: {', '.join(SPAN_KINDS)}")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
        raise ValueError(
            f"{where} is [{start!r}, {end!r}), not a range of characters of a text of {len(text):,} characters"
        )
    return GivenSpan(start, end, label)


def locate_spans(
    text: str, spans: Sequence[GivenSpan], cleaning: Cleaning, paragraphs: Sequence[str]
) -> NDArray[np.int64]:
    """Find the spans of a raw text in its clean paragraphs; one that crosses a paragraph's end is lost.

    Returns:
        Shape (N, 4), ascending: paragraph, start, end (characters of the paragraph) and number of the kind.
    """
    trimmed = [trimmed for span in spans if (trimmed := _trimmed(text, span)) is not None]
    places = _by_marks(text, trimmed, cleaning, paragraphs)
    if places is None:
        places = _by_surfaces(text, trimmed, cleaning, paragraphs)
    rows = sorted((*place, SPAN_KINDS.index(span.kind)) for span, place in zip(trimmed, places, strict=True) if place)
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


_Place = tuple[int, int, int] | None
"""Paragraph, start, end; None for a span that is lost."""


def _trimmed(text: str, span: GivenSpan) -> GivenSpan | None:
    inside = text[span.start : span.end]
    start = span.start + len(inside) - len(inside.lstrip())
    return GivenSpan(start, start + len(inside.strip()), span.kind) if inside.strip() else None


def _by_marks(
    text: str, spans: Sequence[GivenSpan], cleaning: Cleaning, paragraphs: Sequence[str]
) -> list[_Place] | None:
    mark = next((chr(code) for code in _MARKS if chr(code) not in text), None)
    if mark is None:
        return None
    bounds = sorted({bound for span in spans for bound in (span.start, span.end)})
    pieces = [text[start:end] for start, end in zip([0, *bounds], [*bounds, len(text)], strict=True)]
    # A mark at a line's end may hide how the lines of the document are wrapped: try both ways.
    for line_breaks in ("paragraph", "space") if cleaning.line_breaks == "auto" else (cleaning.line_breaks,):
        marked = clean_document(mark.join(pieces), cleaning.replace(line_breaks=line_breaks))
        if [paragraph.replace(mark, "") for paragraph in marked] == list(paragraphs):
            places = [
                (number, found.start() - order)
                for number, paragraph in enumerate(marked)
                for order, found in enumerate(re.finditer(mark, paragraph))
            ]
            where = dict(zip(bounds, places, strict=True))
            return [_place(where[span.start], where[span.end]) for span in spans]
    return None


def _place(start: tuple[int, int], end: tuple[int, int]) -> _Place:
    return (start[0], start[1], end[1]) if start[0] == end[0] and start[1] < end[1] else None


def _by_surfaces(text: str, spans: Sequence[GivenSpan], cleaning: Cleaning, paragraphs: Sequence[str]) -> list[_Place]:
    places: dict[GivenSpan, _Place] = {}
    number = place = 0
    for span in sorted(set(spans)):
        surface = " ".join(clean_document(text[span.start : span.end], cleaning))
        found = _next(paragraphs, surface, number, place) if surface else None
        if found is not None:
            number, place, _ = found
        places[span] = found
    return [places[span] for span in spans]


def _next(paragraphs: Sequence[str], surface: str, number: int, place: int) -> _Place:
    for later, paragraph in enumerate(paragraphs[number:], number):
        found = paragraph.find(surface, place if later == number else 0)
        if found >= 0:
            return later, found, found + len(surface)
    return None
