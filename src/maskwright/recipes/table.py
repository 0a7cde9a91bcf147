"""A recipe as the rows of a paper's table, and two recipes side by side."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maskwright.core.fields import kind_of
from maskwright.core.spec import Spec
from maskwright.recipes.recipe import Recipe
from maskwright.recipes.wording import AXES, field_words, name_words

ABSENT = "–"
"""Shown where one of two recipes has no such field."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a recipe's table.

    Attributes:
        axis: The axis of the family it belongs to, e.g. "masking".
        label: The field's name, e.g. "masking rate".
        value: The formatted value, e.g. "15 %".
        path: Its path for `--set`, e.g. "masking.rate".
    """

    axis: str
    label: str
    value: str
    path: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of a comparison of two recipes.

    Attributes:
        axis, label, path: As in `Row`.
        left: The first recipe's formatted value, `ABSENT` if it has no such field.
        right: The second recipe's, likewise.
    """

    axis: str
    label: str
    left: str
    right: str
    path: str

    @property
    def differs(self) -> bool:
        """Whether the recipes disagree here."""
        return self.left != self.right


def rows(recipe: Recipe) -> list[Row]:
    """List all fields of a recipe, axis by axis."""
    return [row for field, axis in AXES.items() for row in _rows(axis, field, getattr(recipe, field))]


def diff(first: Recipe, second: Recipe, every: bool = False) -> list[Comparison]:
    """Compare two recipes line by line.

    Args:
        first: The left column.
        second: The right column.
        every: Whether equal lines are listed too.
    """
    left, right = rows(first), rows(second)
    left_values = {row.path: row.value for row in left}
    right_values = {row.path: row.value for row in right}
    compared = []
    for axis in dict.fromkeys(AXES.values()):
        known = {row.path: row for row in (*right, *left) if row.axis == axis}
        order = dict.fromkeys(row.path for row in (*left, *right) if row.axis == axis)
        for path in order:
            row = known[path]
            comparison = Comparison(
                axis, row.label, left_values.get(path, ABSENT), right_values.get(path, ABSENT), path
            )
            if every or comparison.differs:
                compared.append(comparison)
    return compared


def _rows(axis: str, path: str, value: Any) -> Iterator[Row]:
    if isinstance(value, Spec):
        for name in type(value).model_fields:
            yield from _rows(axis, f"{path}.{name}", getattr(value, name))
    elif isinstance(value, tuple) and value and all(isinstance(item, Spec) and kind_of(type(item)) for item in value):
        for item in value:
            yield from _member_rows(axis, path, item)
    else:
        label, words = field_words(path, value)
        yield Row(axis, label, words, path)


def _member_rows(axis: str, path: str, member: Spec) -> Iterator[Row]:
    """Rows of one item of a tuple of choices: each of its fields, under the item's name."""
    kind = kind_of(type(member))
    for name in type(member).model_fields:
        if name != "kind":
            field_path = f"{path}.{kind}.{name}"
            label, words = field_words(field_path, getattr(member, name))
            yield Row(axis, name_words(kind), f"{label} {words}", field_path)
