"""How files are read, as the user said it: columns, and `--read field=value`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from maskwright.core.errors import RecipeError, unknown_name
from maskwright.core.spec import parse_overrides
from maskwright.finetuning.readers import ReadOptions


def with_overrides(options: ReadOptions, columns: Mapping[str, str | None], read: Sequence[str]) -> ReadOptions:
    """Return how files are read, with the user's columns and settings.

    Args:
        options: Before.
        columns: Columns by role ("text", "text2", "label"); None leaves them.
        read: "field=value".

    Raises:
        RecipeError: If a field is unknown or its value is not allowed.
    """
    changes: dict[str, Any] = {role: name for role, name in columns.items() if name is not None}
    known = {field.name: field for field in fields(ReadOptions) if field.name != "labels"}
    for name, value in parse_overrides(read):
        if name == "labels":
            raise RecipeError(
                "--read labels=... cannot be said: whether rows need a label follows from what the file is for",
                allowed=", ".join(known),
            )
        if name not in known:
            problem, allowed, todo = unknown_name("setting of reading", name, known)
            raise RecipeError(problem, allowed=allowed, todo=todo)
        changes[name] = in_tuples(value)
    try:
        return TypeAdapter(ReadOptions).validate_python(asdict(replace(options, **changes)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecipeError(f"--read {where}: {first['msg']}; found {first['input']!r}") from None


def in_tuples(value: Any) -> Any:
    """Return a value with its lists, as JSON and command lines have them, as tuples, which frozen values hold."""
    return tuple(in_tuples(item) for item in value) if isinstance(value, list) else value
