"""Names as command lines give them: `neg,pos` and `0` where a list of texts is meant."""

from typing import Any

from pydantic_core import PydanticCustomError


def as_name(value: Any) -> Any:
    """Return a number or truth value, which YAML makes of `0` and `true`, as text, in a list too; else the value."""
    if isinstance(value, list | tuple):
        return tuple(map(as_name, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def name_list(value: Any) -> Any:
    """Return names as a tuple, from a list of them or from a text with commas between; anything else as it is.

    A name that holds a comma can be given in a list.

    Example:
        >>> name_list("neg, pos"), name_list("neg"), name_list([0, "a, b"])
        (('neg', 'pos'), ('neg',), ('0', 'a, b'))
    """
    value = as_name(value)
    if isinstance(value, str):
        return tuple(stripped for part in value.split(",") if (stripped := part.strip()))
    return value


def name_pairs(value: Any) -> tuple[tuple[Any, Any], ...]:
    """Return pairs of names as tuples, from a list of pairs, one pair alone, or a mapping.

    Example:
        >>> name_pairs([["neg", 0], ["pos", 1]]), name_pairs(["neg", 0]), name_pairs({"neg": 0})
        ((('neg', '0'), ('pos', '1')), (('neg', '0'),), (('neg', '0'),))

    Raises:
        PydanticCustomError: If it is none of these; pydantic says where.
    """
    if isinstance(value, dict):
        value = list(value.items())
    elif _is_pair(value):
        value = [value]
    if not isinstance(value, list | tuple) or not all(map(_is_pair, value)):
        raise PydanticCustomError("pairs", "write pairs of names, '[[one, another], [one, another]]'")
    return tuple((as_name(one), as_name(other)) for one, other in value)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and not any(isinstance(part, list | tuple | dict) for part in value)
    )
