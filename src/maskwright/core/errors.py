"""Errors that name the place, the value found, the allowed values and the remedy.

Every error that a user can cause is a `MaskwrightError`; the command line prints it without a traceback.
"""

import difflib
import json
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from maskwright.core.text.amounts import listed

_MAX_CHARACTERS = 4000
_MAX_COMPARED, _LONGEST_COMPARED = 1000, 100


class MaskwrightError(Exception):
    """A problem that the user can fix.

    Args:
        problem: What is wrong and where, with the value found, as one sentence.
        allowed: What would have been accepted, if that is not obvious.
        hint: The remedy.
    """

    def __init__(self, problem: str, *, allowed: str = "", hint: str = "") -> None:
        self.problem = problem
        self.allowed = allowed
        self.hint = hint
        super().__init__(problem, allowed, hint)

    def __str__(self) -> str:
        allowed = self.allowed and f"Allowed: {self.allowed}"
        return " ".join(_sentence(part) for part in (self.problem, allowed, self.hint) if part)

    def __reduce__(self) -> tuple[object, ...]:
        # The default pickling loses keyword-only arguments, and errors are sent between processes.
        return _rebuild, (type(self), self.problem, self.allowed, self.hint)


ErrorType = TypeVar("ErrorType", bound=MaskwrightError)


def json_problem(error: Exception) -> str:
    """Say what is wrong with a line that is not JSON: without `json`'s line number, which counts within the line."""
    return (
        f"column {error.colno}: {error.msg.removesuffix(' at')}"
        if isinstance(error, json.JSONDecodeError)
        else str(error)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _sentence(text: str) -> str:
    if len(text) > _MAX_CHARACTERS:  # it quotes a file
        text = text[:_MAX_CHARACTERS] + " ..."
    return text if text.endswith((".", "?", "`")) else text + "."


def _rebuild(kind: type[MaskwrightError], problem: str, allowed: str, hint: str) -> MaskwrightError:
    return kind(problem, allowed=allowed, hint=hint)


class RecipeError(MaskwrightError):
    """A recipe, an override or a budget that cannot be used."""


class DataError(MaskwrightError):
    """A corpus, a tokenizer or prepared data that cannot be used."""


class JsonError(DataError, ValueError):
    """A JSON file that cannot be read, or is not valid; also a ValueError."""


class CheckpointError(MaskwrightError):
    """A run folder or checkpoint that cannot be read, written or resumed."""


class ConversionError(MaskwrightError):
    """A model folder that cannot be read, or a model that a family cannot hold."""


class TrainingError(MaskwrightError):
    """Training that cannot continue, e.g. after a NaN loss."""


class DivergenceError(TrainingError):
    """A loss or a gradient that is not finite."""


class DeviceError(MaskwrightError):
    """A device, precision or disk that is missing or cannot be used."""


def nearest(name: str, options: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the option most similar to `name`, or None if none is similar; of very many or long ones, some."""
    # Comparing takes time in proportion to the product of the lengths, and options may come from a file.
    compared = [option for option in islice(options, _MAX_COMPARED) if len(option) <= _LONGEST_COMPARED]
    matches = difflib.get_close_matches(name[:_LONGEST_COMPARED], compared, n=1, cutoff=cutoff)
    return matches[0] if matches else None


def suggestion(name: str, options: Iterable[str], otherwise: str = "", cutoff: float = 0.5) -> str:
    """Return the hint that names the option most similar to `name` (see `nearest`); `otherwise` without one."""
    guess = nearest(name, options, cutoff)
    return f"Did you mean {guess!r}?" if guess else otherwise


def unknown_name(error: type[ErrorType], what: str, name: str, options: Iterable[str], where: str = "") -> ErrorType:
    """Return the error for a name that is not among the options; its message begins with `where`."""
    known = sorted(options)
    return error(f"{where}unknown {what} {name!r}", allowed=listed(known), hint=suggestion(name, known))
