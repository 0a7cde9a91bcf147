"""How one file was read, so that others of the same data are read alike and not guessed anew.

Guesses depend on what a file happens to hold: whether a quotation mark is needed, which column is the longest, whether
the last option is ever the right one. What the training file showed is therefore kept, for the development and test
files, and beside the model for files that it meets later.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from maskwright.core.errors import DataError
from maskwright.finetuning.readers.options import ReadOptions

ReadAs = Mapping[str, Any]
"""Fields of `ReadOptions` with the values that a file was read with."""

_KEPT = (
    "text",
    "text2",
    "choices",
    "label",
    "label_columns",
    "label_separator",
    "label_names",
    "first_option",
    "header",
    "quoting",
    "delimiter",
    "word_ending",
)
"""What files of the same data have in common. Format and encoding are not among it: they are each file's own."""
_OPEN = ReadOptions()


def to_keep(options: ReadOptions, shown: ReadAs) -> dict[str, Any]:
    """Return what is to be kept of how a file was read.

    Args:
        options: What was asked for.
        shown: What the file showed (`ExampleFile.read_as`).
    """
    asked = {name: getattr(options, name) for name in _KEPT if getattr(options, name) != getattr(_OPEN, name)}
    return {**asked, **shown}


def with_defaults(options: ReadOptions, read_as: ReadAs) -> ReadOptions:
    """Return options with what they leave open filled in: so a file is read as another one was.

    Args:
        options: What is asked for.
        read_as: How the other file was read.
    """
    filled = {name: value for name, value in read_as.items() if getattr(options, name) == getattr(_OPEN, name)}
    if options.named_columns():
        filled.pop("header", None)  # a header is where these columns stand in it
    if options.text:
        filled.pop("text2", None)
    if options.label or options.label_columns:
        filled = {name: value for name, value in filled.items() if name not in ("label", "label_columns")}
    return replace(options, **filled)


def read_as_from_json(data: Any, where: str) -> dict[str, Any]:
    """Return what was kept in a JSON file.

    Raises:
        DataError: If it does not fit.
    """
    if not isinstance(data, dict) or not data.keys() <= set(_KEPT):
        raise DataError(f"{where} does not tell how files are read", allowed=", ".join(_KEPT))
    try:
        options = TypeAdapter(ReadOptions).validate_python({**asdict(_OPEN), **data})
    except ValidationError as error:
        raise DataError(f"{where}: {error.errors()[0]['msg']}", todo="Remove the file to have it guessed.") from None
    return {name: getattr(options, name) for name in data}
