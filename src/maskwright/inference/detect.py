"""Replaced token detection: the result for a text, and its display."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

THRESHOLD = 0.5
"""Probability from which a token counts as replaced."""

_FLAGGED, _BESIDE = "bold white on red", "red"


@dataclass(frozen=True, slots=True)
class Judged:
    """One token of a text with its probability of being replaced.

    Attributes:
        token: The token, readably: "##ing" continues the word before, " the" brings its own space.
        token_id: Its id.
        start, end: The characters [start, end) of the text that it covers.
        probability: That the token was replaced, in [0, 1].
        replaced: Whether the probability reaches the threshold.
    """

    token: str
    token_id: int
    start: int
    end: int
    probability: float
    replaced: bool


@dataclass(frozen=True, slots=True)
class Detection:
    """The result for one text.

    Attributes:
        text: The text.
        tokens: Its tokens in order, up to the maximum length.
    """

    text: str
    tokens: tuple[Judged, ...]

    @property
    def replaced(self) -> tuple[Judged, ...]:
        """The tokens that look replaced."""
        return tuple(token for token in self.tokens if token.replaced)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, for programs."""
        return asdict(self)


def summary(detections: Sequence[Detection]) -> str:
    """Return a summary such as "2 of 9 tokens look replaced"."""
    total = sum(len(detection.tokens) for detection in detections)
    found = sum(len(detection.replaced) for detection in detections)
    return f"{found:,} of {total:,} token{'s' * (total != 1)} look{'s' * (found == 1)} replaced"


def marked(detection: Detection) -> Text:
    """Return a text with the tokens that look replaced coloured, readable without colours too: `ate{97%}`."""
    text, drawn, done = detection.text, Text(), 0
    for token in detection.replaced:
        # Byte-level tokens may cover parts of one character, and the space before a word.
        start = max(done, token.end - len(text[token.start : token.end].lstrip()))
        end = max(start, token.end)
        drawn.append(text[done:start])
        drawn.append(text[start:end], style=_FLAGGED)
        drawn.append(f"{{{token.probability:.0%}}}", style=_BESIDE)
        done = end
    drawn.append(text[done:])
    return drawn
