"""Finding one's way through nested models: members of unions, dotted paths, messages that suggest a name."""

import difflib
import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from maskwright.core.errors import nearest

_LONGEST_VALUE = 80


def members(annotation: Any) -> list[type[BaseModel]]:
    """List the model classes a field so annotated can hold: itself, a union's members, a tuple's items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, Annotated, list, tuple):
        return [member for part in get_args(annotation) for member in members(part)]
    return []


def kind_of(member: type[BaseModel]) -> str:
    """Return the name a model has in a union: the one value of its `kind`, or "" without one."""
    field = member.model_fields.get("kind")
    if field is None or get_origin(field.annotation) is not Literal:
        return ""
    return str(get_args(field.annotation)[0])


def kinds(annotation: Any) -> list[str]:
    """List the names of a union's members, in the order of the union."""
    return [kind for member in members(annotation) if (kind := kind_of(member))]


def member_of(annotation: Any, value: Any) -> type[BaseModel] | None:
    """Return the model class that plain data would be read as, or None if it would not be a model.

    Args:
        annotation: The field's annotation.
        value: Plain data: a mapping, a member's bare name, or None for a value that is not there yet.
    """
    candidates = members(annotation)
    named = value.get("kind") if isinstance(value, dict) else value
    for member in candidates:
        if isinstance(named, str) and kind_of(member) == named:
            return member
    return candidates[0] if len(candidates) == 1 and (value is None or isinstance(value, dict)) else None


def field_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List the dotted paths of all fields below a model, following unions into their members.

    Items of a tuple are written by `kind`, as overrides address them ("objectives.mlm.weight").
    """
    paths: dict[str, None] = {}
    for name, field in model.model_fields.items():
        paths[prefix + name] = None
        listed = _is_sequence(field.annotation)
        for member in members(field.annotation):
            step = f"{name}.{kind_of(member) or 0}." if listed else f"{name}."
            paths.update(dict.fromkeys(field_paths(member, prefix + step)))
    return list(paths)


def _is_sequence(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_sequence(get_args(annotation)[0])
    return get_origin(annotation) in (list, tuple)


def suggest_path(name: str, parent: str, known: Sequence[str], model: type[BaseModel]) -> str | None:
    """Return the dotted path that someone who wrote `name` below `parent` may have meant, or None.

    A field of that very name elsewhere comes first ("learning_rate" for "training.learning_rate"), then a
    near name in the same place, then a near name elsewhere.
    """
    leaves: dict[str, str] = {}
    for path in field_paths(model):
        leaves.setdefault(path.rpartition(".")[2], path)
    if name in leaves:
        return leaves[name]
    here = nearest(name, known)
    elsewhere = nearest(name, leaves)
    if elsewhere is not None and _likeness(name, elsewhere) > max(0.7, _likeness(name, here or "")):
        return leaves[elsewhere]
    return ".".join(filter(None, [parent, here])) if here else None


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def explain(error: ValidationError, model: type[BaseModel], data: Any) -> str:
    """Say in one sentence a problem where each field of `data` does not fit, with what was found.

    Paths are written as overrides write them: members of unions by field, items of tuples by kind or number.
    """
    lines = []
    problems = error.errors()
    inner = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    for problem in problems:
        if problem["type"] == "too_short" and problem["loc"] in inner:
            continue  # items that did not fit are not counted; they are named themselves
        where, holder, annotation = _place(problem["loc"], model, data)
        lines.append(f"{where or model.__name__}: {_sentence(problem, holder, annotation)}")
    return "; ".join(lines)


def _sentence(problem: Any, holder: type[BaseModel], annotation: Any) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            guess = nearest(str(problem["loc"][-1]), holder.model_fields)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(holder.model_fields)}"
            return f"unknown field; {hint}"
        case "missing":
            return "this is needed"
        case "union_tag_invalid":
            guess = nearest(str(context.get("tag")), kinds(annotation))
            hint = f"; did you mean {guess!r}?" if guess else ""
            return f"unknown choice {context.get('tag')!r}; allowed: {', '.join(kinds(annotation))}{hint}"
        case "union_tag_not_found":
            return f"'kind' is needed; allowed: {', '.join(kinds(annotation))}"
        case "tuple_type" if isinstance(problem["input"], str) and problem["input"] in kinds(annotation):
            return f"write a list, [{problem['input']}]"
        case "value_error":
            return str(context["error"])
        case _:
            found = repr(problem["input"])
            if len(found) > _LONGEST_VALUE:
                found = found[:_LONGEST_VALUE] + "..."
            return f"{problem['msg']}; found {found}"


def _place(location: tuple[int | str, ...], model: type[BaseModel], data: Any) -> tuple[str, type[BaseModel], Any]:
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
        member = member_of(annotation, here)
        if member is not None:
            if part == kind_of(member) and part not in member.model_fields:
                continue  # pydantic names the union's member in the location; readers know it from the field
            holder = member
        steps.append(part)
        annotation = holder.model_fields[part].annotation if part in holder.model_fields else Any
        here = here.get(part) if isinstance(here, dict) else getattr(here, part, None)
    return ".".join(steps), holder, annotation
