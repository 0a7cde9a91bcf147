"""Replaced token detection: the results for a text, and their display."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from maskwright.data.tokenizers.tokenizer import EncodedText, Tokenizer

THRESHOLD = 0.5
"""Probability from which a token counts as replaced."""

_TOKEN_STYLE, _PROBABILITY_STYLE = "bold white on red", "red"


@dataclass(frozen=True, slots=True)
class TokenPrediction:
    """One token of a text with its probability of being replaced.

    Attributes:
        token: Readable: "##ing" continues a word, " the" includes the space before it.
        start, end: Its characters [start, end) of the text.
        probability: In [0, 1].
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
    """The tokens of one text in order, up to the maximum length."""

    text: str
    tokens: tuple[TokenPrediction, ...]

    @property
    def replaced(self) -> tuple[TokenPrediction, ...]:
        return tuple(token for token in self.tokens if token.replaced)


def detection(
    text: str, encoded: EncodedText, probabilities: Sequence[float], threshold: float, tokenizer: Tokenizer
) -> Detection:
    """Combine the tokens of a text with their probabilities; tokens beyond the maximum length have none."""
    predictions = tuple(
        TokenPrediction(
            tokenizer.token_text(int(id)), int(id), int(start), int(end), probability, probability >= threshold
        )
        for id, (start, end), probability in zip(encoded.ids, encoded.offsets, probabilities, strict=False)
    )
    return Detection(text, predictions)


def summary(detections: Sequence[Detection]) -> str:
    """Return a summary such as "2 of 9 tokens look replaced"."""
    total = sum(len(detection.tokens) for detection in detections)
    replaced = sum(len(detection.replaced) for detection in detections)
    return f"{replaced:,} of {total:,} token{'s' * (total != 1)} look{'s' * (replaced == 1)} replaced"


def highlight(detection: Detection) -> Text:
    """Return the text with the tokens that look replaced in color and with their probability: `ate{97%}`."""
    text, shown, done = detection.text, Text(), 0
    for token in detection.replaced:
        # Byte-level tokens may cover parts of one character, and the space before a word.
        start = max(done, token.end - len(text[token.start : token.end].lstrip()))
        end = max(start, token.end)
        shown.append(text[done:start])
        shown.append(text[start:end], style=_TOKEN_STYLE)
        shown.append(f"{{{token.probability:.0%}}}", style=_PROBABILITY_STYLE)
        done = end
    shown.append(text[done:])
    return shown
