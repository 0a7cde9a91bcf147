"""Texts that are longer than a model reads."""

import warnings
from collections.abc import Iterable, Sequence

from maskwright.core.errors import MaskwrightError

_SHOWN = 10
_FEWEST_TOKENS = 3
IGNORED = "the rest is ignored"
WINDOWS_HINT = "`--windows`, in Python `windows=True`, reads all of it"


class TruncationWarning(UserWarning):
    """Texts were longer than the model's maximum length and were truncated.

    Attributes:
        texts: Their indices.
    """

    def __init__(self, message: str, texts: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.texts = tuple(texts)


class UntrainedLength(UserWarning):
    """Sequences may be longer than those that the model was trained on."""


def choose_length(requested: int | None, trained: int, positions: int, name: str) -> int:
    """Return the maximum length of sequences, special tokens included: the requested one, or `trained`.

    `positions` is the number of positions of the model called `name`. Raises MaskwrightError if there are fewer; warns
    of a length beyond the trained one.
    """
    if requested is None:
        return trained
    if not _FEWEST_TOKENS <= requested <= positions:
        raise MaskwrightError(
            f"max_length is {requested}", allowed=f"{_FEWEST_TOKENS} to {positions}, the positions of {name}"
        )
    if requested > trained:
        message = f"{name} was trained on sequences of up to {trained} tokens, and may be worse on longer ones"
        warnings.warn(UntrainedLength(message), stacklevel=3)
    return requested


def truncated_texts(caught: Iterable[warnings.WarningMessage]) -> list[int]:
    """Return the indices of the texts of all `TruncationWarning`s, ascending."""
    messages = [each.message for each in caught]
    return sorted({text for each in messages if isinstance(each, TruncationWarning) for text in each.texts})


def warn_truncated(
    texts: Sequence[int], count: int, limit: str, effect: str, *, hint: str = "", stacklevel: int
) -> None:
    """Warn that `texts`, indices of `count` texts, are longer than the limit ("more than 128 tokens"), if any are."""
    if not texts:
        return
    shown = ", ".join(str(number + 1) for number in texts[:_SHOWN]) + ", ..." * (len(texts) > _SHOWN)
    subject, which = f"{len(texts)} of {count} texts have", f" (texts {shown})"
    if count == 1:
        subject, which = "the text has", ""
    warnings.warn(
        TruncationWarning(f"{subject} {limit}; {effect}{which}" + f"; {hint}" * bool(hint), texts),
        stacklevel=stacklevel + 1,
    )
