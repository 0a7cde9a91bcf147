"""Fields of nested pydantic models: members of unions, dotted paths, and error messages that suggest a name."""

import difflib
import re
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from maskwright.core.errors import nearest
from maskwright.core.text.amounts import pluralize

_LONGEST_VALUE = 80


def members(annotation: Any) -> list[type[BaseModel]]:
    """List the model classes that a field with this annotation can hold: itself, a union's members, a tuple's items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, Annotated, list, tuple):
        return [member for part in get_args(annotation) for member in members(part)]
    return []


def kind_of(member: type[BaseModel]) -> str:
    """Return the name of a model in a union: the one value of its `kind`, or "" without one."""
    field = member.model_fields.get("kind")
    if field is None or get_origin(field.annotation) is not Literal:
        return ""
    return str(get_args(field.annotation)[0])


def kinds(annotation: Any) -> list[str]:
    """List the names of a union's members, in the order of the union."""
    return [kind for member in members(annotation) if (kind := kind_of(member))]


def member_of(annotation: Any, value: Any) -> type[BaseModel] | None:
    """Return the model class for plain data (a mapping, a member's name, or None), or None if there is none."""
    candidates = members(annotation)
    name = value.get("kind") if isinstance(value, dict) else value
    for member in candidates:
        if isinstance(name, str) and kind_of(member) == name:
            return member
    return candidates[0] if len(candidates) == 1 and (value is None or isinstance(value, dict)) else None


def is_null(annotation: Any) -> bool:
    """Return whether "none" can only mean null for a field: it may be null, and has no choice of that name."""
    parts = get_args(annotation)
    return type(None) in parts and not any("none" in get_args(part) for part in parts)


def field_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List the dotted paths of all fields below a model, following unions into their members.

    Items of a tuple are named by `kind`, as in overrides ("objectives.mlm.weight").
    """
    paths: dict[str, None] = {}
    for name, field in model.model_fields.items():
        paths[prefix + name] = None
        for member in members(field.annotation):
            item = f".{kind_of(member) or 0}" if _is_sequence(field.annotation) else ""
            paths.update(dict.fromkeys(field_paths(member, f"{prefix}{name}{item}.")))
    return list(paths)


def _is_sequence(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_sequence(get_args(annotation)[0])
    return get_origin(annotation) in (list, tuple)


def suggest_path(name: str, parent: str, known: Sequence[str], model: type[BaseModel]) -> str | None:
    """Return the dotted path that `name`, written below `parent`, probably means, or None.

    A field of exactly this name elsewhere comes first ("learning_rate" for "training.learning_rate"), then a similar
    name in the same place, then a similar name elsewhere.
    """
    leaves: dict[str, str] = {}
    for path in field_paths(model):
        leaves.setdefault(path.rpartition(".")[2], path)
    if name in leaves:
        return leaves[name]
    here, elsewhere = nearest(name, known), nearest(name, leaves)
    if elsewhere is not None and _similarity(name, elsewhere) > max(0.7, _similarity(name, here or "")):
        return leaves[elsewhere]
    return ".".join(filter(None, [parent, here])) if here else None


def _similarity(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def explain(error: ValidationError, model: type[BaseModel], data: Any) -> str:
    """Describe each field of `data` that does not fit, with the value found.

    Paths are written as in overrides: members of unions by field, items of tuples by kind or number.
    """
    problems = error.errors()
    parents = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    lines = []
    for problem in problems:
        if problem["type"] == "too_short" and problem["loc"] in parents:
            continue  # pydantic does not count items that are wrong; each of them has its own message.
        where, holder, annotation = _locate(problem["loc"], model, data)
        lines.append(f"{where or model.__name__}: {_describe(problem, holder, annotation)}")
    return "; ".join(lines)


_NEEDED = (
    ("tuple", "must be a list, e.g. [a, b]"),
    ("int", "must be a whole number"),
    ("float", "must be a number"),
    ("bool", "must be true or false"),
    ("string", "must be text"),
    ("model", "must be a mapping {field: value}"),
)
"""Messages by the start of pydantic's error type ("tuple_type", "int_parsing", ...)."""


def _describe(problem: Any, holder: type[BaseModel], annotation: Any) -> str:
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    options = kinds(annotation)
    match kind:
        case "extra_forbidden":
            guess = nearest(str(problem["loc"][-1]), holder.model_fields)
            return "unknown field; " + (
                f"did you mean {guess!r}?" if guess else f"known: {', '.join(holder.model_fields)}"
            )
        case "missing":
            return "a value is missing"
        case "union_tag_invalid":
            guess = nearest(str(context.get("tag")), options)
            hint = f"; did you mean {guess!r}?" if guess else ""
            return f"unknown choice {context.get('tag')!r}; allowed: {', '.join(options)}{hint}"
        case "union_tag_not_found":
            return f"'kind' is missing; allowed: {', '.join(options)}"
        case "too_short":
            needed = f"must have at least {pluralize(context['min_length'], 'item')}"
        case "value_error":
            return str(context["error"])
        case "tuple_type" if isinstance(value, str) and value in options:
            return f"must be a list: [{value}]"
        case "model_attributes_type" if options:
            needed = f"must be one of {', '.join(options)}, or a mapping {{kind: ..., field: value}}"
        case _:
            plain = re.sub("^Input should be", "must be", problem["msg"])
            needed = next((text for start, text in _NEEDED if kind.startswith(f"{start}_")), plain)
    shown = repr(value)
    return f"{needed}; found {shown if len(shown) <= _LONGEST_VALUE else shown[:_LONGEST_VALUE] + '...'}"


def _locate(location: tuple[int | str, ...], model: type[BaseModel], data: Any) -> tuple[str, type[BaseModel], Any]:
    """Return (readable path, model class that holds the last step, annotation of the last step)."""
    steps: list[str] = []
    holder, here = model, data
    annotation: Any = model
    for part in location:
        if isinstance(part, int):
            here = here[part] if isinstance(here, list | tuple) and part < len(here) else None
            kind = here.get("kind") if isinstance(here, dict) else here
            steps.append(kind if isinstance(kind, str) and kind in kinds(annotation) else str(part))
            continue
        if (member := member_of(annotation, here)) is not None:
            if part == kind_of(member) and part not in member.model_fields:
                continue  # pydantic adds the union's member to the location; the field already implies it.
            holder = member
        steps.append(part)
        annotation = holder.model_fields[part].annotation if part in holder.model_fields else Any
        here = here.get(part) if isinstance(here, dict) else getattr(here, part, None)
    return ".".join(steps), holder, annotation
