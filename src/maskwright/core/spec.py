"""Frozen, validated values: the base of every recipe part, with dotted overrides.

A choice between alternatives is a discriminated union on `kind`. In place of such a union a string names the
alternative with its defaults (`masking=whole_word`).
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from maskwright.core.errors import RecipeError
from maskwright.core.fields import explain, is_null, kinds, member_of, suggest_path
from maskwright.core.plain_yaml import read_yaml

Condition: TypeAlias = tuple[str, Callable[[Any], bool]]
Conditions: TypeAlias = Mapping[str, tuple[Condition, ...]]


class Spec(BaseModel):
    """Base of every configuration value: frozen, no unknown fields, defaults validated.

    Attributes:
        synonyms: Names that other programs use for a field, with its dotted path here; suggested in error messages.
        used_with: Fields without effect unless other fields have certain values: each other field, and whether a value
            of it is one of these. Without effect, a field must have its default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    synonyms: ClassVar[Mapping[str, str]] = {}
    used_with: ClassVar[Conditions] = {}

    @classmethod
    def unused(cls, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the fields that have no effect with these values, each with the field that makes it so.

        A missing value is the default.
        """
        causes = {}
        for name, conditions in cls.used_with.items():
            for other, is_used in conditions:
                if not is_used(values.get(other, cls.model_fields[other].default)):
                    causes[name] = other
        return causes

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        values = dict(self)
        for name, cause in self.unused(values).items():
            if values[name] != (default := type(self).model_fields[name].default):
                value, other = _shown(values[name]), _shown(values[cause])
                raise ValueError(
                    f"{name} {value} has no effect with {cause} {other}; change {cause}, or leave {name} "
                    f"{_shown(default)}"
                )
        return self

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; RecipeError if it is not valid as a whole."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return validate(type(self), {**fields, **changes})


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else repr(value)


SpecType = TypeVar("SpecType", bound=Spec)


def by_name(value: Any) -> Any:
    """Expand the name of a union's member to the member with its defaults: "token" -> {"kind": "token"}."""
    return {"kind": value} if isinstance(value, str) else value


ByName = BeforeValidator(by_name)


def fingerprint(value: Any) -> str:
    """Return 16 hexadecimal digits that identify a JSON-like value (keys are strings), a Spec, or a mixture of both."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return dict(value) if isinstance(value, Mapping) else str(value)


def validate(model: type[SpecType], data: Any, source: str = "") -> SpecType:
    """Build a Spec from JSON-like data; `source` names its file in errors.

    Raises RecipeError if the data is not valid; it names each field, the value found and the nearest name.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise RecipeError((f"{source}: " if source else "") + explain(error, model, data)) from None


def overridden_fields(overrides: Iterable[tuple[str, Any]]) -> frozenset[str]:
    """Return the dotted fields that overrides set; a mapping sets only the fields it names."""
    return frozenset(field for path, value in overrides for field in _leaves(path, value))


def _leaves(path: str, value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [leaf for name, item in value.items() for leaf in _leaves(f"{path}.{name}", item)]
    return [path]


def parse_overrides(overrides: Iterable[str]) -> list[tuple[str, Any]]:
    """Split `field=value` texts; the value is YAML, so `0.3`, `true`, `[mlm, nsp]` and `{...}` work.

    Only `true` and `false` are booleans: `language=no` is Norwegian.

    Raises RecipeError if a text has no `=` or its value is not YAML, or for one text or a dictionary.
    """
    if isinstance(overrides, str | Mapping):
        raise RecipeError(
            f"overrides of fields are {overrides!r}, a {type(overrides).__name__}",
            allowed="a list of texts",
            hint='For example `["field=value"]`.',
        )
    pairs = []
    for text in overrides:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise RecipeError(
                f"cannot read {text!r} as a field and its value",
                allowed="`field=value`, or `part.field=value` for a field of a part",
            )
        try:
            parsed = read_yaml(value) if value.strip() else ""
        except ValueError:
            raise RecipeError(
                f"cannot read the value in {text!r}",
                allowed="a number, true, false, null, a name, [a, b] or {field: value}",
                hint="Check its brackets and quotes.",
            ) from None
        pairs.append((path.strip(), parsed))
    return pairs


def override(spec: SpecType, pairs: Iterable[tuple[str, Any]]) -> SpecType:
    """Return `spec` with dotted fields replaced; items of a tuple are addressed by `kind` or by number.

    Changes are made in order and only the result is validated, so two fields that must agree can both change. A
    mapping changes only the fields it names. Choosing another member of a union, by name or through its `kind`,
    starts from that member's defaults. A field that the changes leave without effect (`Spec.used_with`) gets its
    default, unless it is among the changes itself. "none", as tables show it, is null where no choice has that name.

    Raises RecipeError if a field is unknown (the nearest name is suggested) or a value is not allowed.
    """
    model = type(spec)
    data: Any = spec.model_dump()
    pairs = list(pairs)
    for path, value in pairs:
        data = _changed(data, model, path.split("."), 0, value, model)
    return validate(model, _without_unused(data, model, overridden_fields(pairs)))


def _without_unused(
    data: Mapping[str, Any], model: type[Spec], fixed: Collection[str], prefix: str = ""
) -> dict[str, Any]:
    """Return plain data of a model without fields that have no effect and are not fixed."""
    data = dict(data)
    for name in model.unused(data):
        if f"{prefix}{name}" not in fixed:
            data.pop(name, None)
    for name, field in model.model_fields.items():
        part = data.get(name)
        member = member_of(field.annotation, part)
        if isinstance(part, dict) and member is not None and issubclass(member, Spec):
            data[name] = _without_unused(part, member, fixed, f"{prefix}{name}.")
    return data


def _changed(old: Any, annotation: Any, steps: list[str], depth: int, value: Any, root: type[Spec]) -> Any:
    """Return the plain data `old` of a field with this annotation, with `value` at `steps[depth:]` below it."""
    if depth == len(steps):
        return _merged(old, None if value == "none" and is_null(annotation) else value)
    step, parent = steps[depth], ".".join(steps[:depth])
    if isinstance(old, list | tuple):
        position = _position(old, step, parent, steps, root)
        new = _changed(old[position], annotation, steps, depth + 1, value, root)
        return [*old[:position], new, *old[position + 1 :]]
    model = member_of(annotation, old)
    if model is None:
        path = ".".join(steps)
        raise RecipeError(
            f"cannot set {path!r}: {parent!r} is {old!r}, which has no fields", allowed=", ".join(kinds(annotation))
        )
    if step not in model.model_fields:
        raise _unknown_field(step, parent, list(model.model_fields), steps, root)
    fields = by_name(old) or {}
    if step == "kind" and depth + 1 == len(steps):
        return old if fields.get("kind") == value else value
    annotation = model.model_fields[step].annotation
    return {**fields, step: _changed(fields.get(step), annotation, steps, depth + 1, value, root)}


def _merged(old: Any, new: Any) -> Any:
    if isinstance(new, dict) and isinstance(old, dict) and new.get("kind", old.get("kind")) == old.get("kind"):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    return new


def _position(items: Sequence[Any], step: str, parent: str, steps: list[str], root: type[Spec]) -> int:
    plain = [by_name(item) for item in items]
    names = [
        str(item.get("kind", number)) if isinstance(item, dict) else str(number) for number, item in enumerate(plain)
    ]
    if step in names:
        return names.index(step)
    if step.isdecimal() and int(step) < len(items):
        return int(step)
    raise _unknown_field(step, parent, names, steps, root)


def _unknown_field(step: str, parent: str, known: Sequence[str], steps: list[str], root: type[Spec]) -> RecipeError:
    guess = root.synonyms.get(step) or suggest_path(step, parent, known, root)
    where = f" in {parent!r} (from {'.'.join(steps)!r})" if parent else ""
    hint = f"Did you mean {guess!r}?" if guess else ""
    return RecipeError(f"unknown field {step!r}{where}", allowed=", ".join(known), hint=hint)
