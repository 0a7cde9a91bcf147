"""Labels as files write them: names of classes, numbers, several classes at once."""

import math
from collections import Counter
from collections.abc import Iterable

from maskwright.finetuning.readers.options import ReadOptions

_SEPARATORS = "|;,"


def class_name(value: object) -> str | None:
    """Return a class as text; None where there is none.

    JSON and Parquet hold numbers and booleans: 1 and 1.0 are the class "1" (a missing label turns whole numbers into
    fractions in pandas), true is "true".

    Raises:
        ValueError: If the value is no name; with the reason.
    """
    match value:
        case None:
            return None
        case str():
            return value.strip() or None
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            if math.isnan(value):
                return None
            return str(int(value)) if value.is_integer() else str(value)
        case _:
            raise ValueError(f"the label is a {type(value).__name__}, not one class")


def number(value: object) -> float | None:
    """Return a label of a regression; None where there is none. A decimal comma is one.

    Raises:
        ValueError: If the value is no finite number; with the reason.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        result = float(value.strip().replace(",", ".", 1)) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"the label {value!r} is not a number") from None
    if math.isnan(result) and not isinstance(value, str):
        return None
    if not math.isfinite(result):
        raise ValueError(f"the label {value!r} is not a finite number")
    return result


def class_names(value: object, separator: str | None) -> tuple[str, ...] | None:
    """Return the classes that hold, each once, in their order; None where the label is missing.

    Args:
        value: A list of names, or a text with a separator between them. An empty text or list: none holds.
        separator: None: the text is one name.

    Raises:
        ValueError: If one of them is no name; with the reason.
    """
    if value is None:
        return None
    parts: Iterable[object]
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, str):
        parts = value.split(separator) if separator else [value]
    else:
        parts = [value]
    return tuple(dict.fromkeys(name for part in parts if (name := class_name(part)) is not None))


def flag(value: object) -> bool:
    """Return whether a class holds.

    Raises:
        ValueError: If the value is neither 0 nor 1.
    """
    match str(value).strip().casefold():
        case "1" | "1.0" | "true":
            return True
        case "0" | "0.0" | "false":
            return False
        case _:
            raise ValueError(f"{value!r} is neither 0 nor 1")


def guess_separator(values: Iterable[object]) -> str | None:
    """Return what stands between several classes in one text: the commonest of | ; and comma, None if none does."""
    counts: Counter[str] = Counter()
    for value in values:
        if isinstance(value, str):
            counts.update({mark: 1 for mark in _SEPARATORS if mark in value})
    return counts.most_common(1)[0][0] if counts else None


def check_known(name: str, options: ReadOptions) -> str:
    """Return the class under the name it is to have.

    Raises:
        ValueError: If it is none of the known ones.
    """
    name = dict(options.label_names).get(name, name)
    if options.known_labels and name not in options.known_labels:
        raise ValueError(f"the label {name!r} is none of {', '.join(options.known_labels)}")
    return name
