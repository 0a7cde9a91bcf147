"""Rules that fit a spec, such as a recipe: which field, which value, for which reason."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from maskwright.core.spec import Spec, SpecType, validate
from maskwright.core.text.amounts import exact_or_short, plain_float
from maskwright.reporting.reporter import Reporter
from maskwright.reporting.table import Table

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """One field, its value, and the reason for the value.

    Attributes:
        field: Dotted name. An item of a list is named by its `kind`; `*` is every item that has the next field.
        value, reason: Constants, or functions of the facts that the spec is fitted to.
        applies: Whether these facts call for the rule.
    """

    field: str
    value: Callable[[Facts], Any] | str | float | bool | tuple[str, ...]
    reason: Callable[[Facts], str] | str
    applies: Callable[[Facts], bool] = lambda facts: True


@dataclass(frozen=True, slots=True)
class Choice:
    """A fitted field: its dotted name, published and chosen value, and the reason."""

    field: str
    published: Any
    chosen: Any
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as a JSON file would give it back."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    def shown(self) -> tuple[str, str]:
        return _shown(self.published), _shown(self.chosen)


def apply_rules(
    spec: SpecType, rules: Iterable[Rule[Facts]], facts: Facts, fixed: Collection[str] = (), *, prefix: str = ""
) -> tuple[SpecType, tuple[Choice, ...]]:
    """Set the fields of all rules that apply, and return the choices that changed a value.

    Args:
        fixed: Dotted fields that stay, as the user set them.
        prefix: Put before the names of fields in the choices.

    Raises:
        RecipeError: If the values do not fit together.
    """
    data: dict[str, Any] = spec.model_dump()
    choices = []
    for rule in rules:
        if not rule.applies(facts):
            continue
        chosen = rule.value(facts) if callable(rule.value) else rule.value
        reason = rule.reason(facts) if callable(rule.reason) else rule.reason
        for path, parent in _parents(data, rule.field.split(".")):
            name = path.rpartition(".")[2]
            if parent[name] != chosen and not is_fixed(path, fixed):
                choices.append(Choice(prefix + path, parent[name], chosen, reason))
                parent[name] = chosen
    return (validate(type(spec), data) if choices else spec), tuple(choices)


def reset_fields(published: Spec, changed: Spec, fixed: Collection[str], prefix: str = "") -> tuple[Choice, ...]:
    """Return the published fields that the user's settings left without effect (`core.spec.override`)."""
    choices: list[Choice] = []
    unused = changed.unused(dict(changed))
    for name in type(changed).model_fields:
        before, after, path = getattr(published, name), getattr(changed, name), f"{prefix}{name}"
        if isinstance(before, Spec) and type(before) is type(after):
            choices += reset_fields(before, after, fixed, f"{path}.")
        elif name in unused and before != after and path not in fixed:
            cause = unused[name]
            choices.append(Choice(path, before, after, f"without effect with {cause} {getattr(changed, cause)}"))
    return tuple(choices)


def is_fixed(path: str, fixed: Collection[str]) -> bool:
    """Return whether a dotted field, a part of it or what contains it is among the fixed ones."""
    return any(path == name or path.startswith(name + ".") or name.startswith(path + ".") for name in fixed)


def round_digits(number: float, digits: int = 2) -> float:
    return float(f"{number:.{digits}g}")


def _parents(data: Any, steps: list[str], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the full dotted name and the mapping that contains the field, for each field that `steps` name."""
    step, *rest = steps
    if isinstance(data, dict):
        if rest:
            yield from _parents(data[step], rest, f"{path}{step}.")
        else:
            yield path + step, data
        return
    for item in data:
        if step == item["kind"] or (step == "*" and rest[0] in item):
            yield from _parents(item, rest, f"{path}{item['kind']}.")


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return exact_or_short(value)
        case float():
            return plain_float(value)
        case tuple() | list():
            return ", ".join(map(_shown, value))
        case _:
            return str(value)


def fitted_table(choices: Sequence[Choice], field: str, origin: str = "published") -> Table:
    """Return the fields that were fitted, each with the value of its origin, the chosen one and the reason."""
    rows = [(choice.field, *choice.shown(), choice.reason) for choice in choices]
    return Table((field, origin, "this run", "reason"), rows)


def report_fitted(choices: Sequence[Choice], reporter: Reporter, *, field: str, origin: str = "published") -> None:
    if choices:
        reporter.table("fitted", fitted_table(choices, field, origin))
