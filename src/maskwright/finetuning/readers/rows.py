"""A table: rows with named columns, whatever kind of file they come from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        number: Its line or record number, from 1: its key where it has no other.
        values: As many as the table has columns: text, or whatever JSON and Parquet hold; None where there is none.
    """

    number: int
    values: Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file.

    Attributes:
        name: The file, for messages.
        columns: Their names; "1", "2" and so on where the file has no header.
        repeated: Those whose name the header holds more than once, with that name.
        rows: In the order of the file.
        counted_in: What `Row.number` counts: "line" or "record".
        notes: What was guessed about the file.
        read_as: The same as fields of `ReadOptions`.
        names_among_rows: What the first line holds, where it is a row as asked for, but must be names of columns.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    repeated: Mapping[str, str] = field(default_factory=dict)
    counted_in: str = "line"
    notes: tuple[str, ...] = ()
    read_as: Mapping[str, Any] = field(default_factory=dict)
    names_among_rows: tuple[str, ...] = ()

    def place(self, row: Row) -> str:
        """Say where a row is."""
        return f"{self.name}, {self.counted_in} {row.number}"

    def values_of(self, column: str) -> list[object]:
        """Return a column's values."""
        index = self.columns.index(column)
        return [row.values[index] for row in self.rows]


def repeated_names(names: Sequence[str]) -> dict[str, str]:
    """Return the unique names (`unique_names`) of columns whose name stands more than once, with that name."""
    written = [name.strip() for name in names]
    counts = Counter(written)
    unique = unique_names(names)
    return {called: name for called, name in zip(unique, written, strict=True) if name and counts[name] > 1}


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Give columns without name their number (from 1), and repeated ones a number behind."""
    taken: set[str] = set()
    result = []
    for number, name in enumerate(names, 1):
        name = name.strip() or str(number)
        unique, count = name, 2
        while unique in taken:
            unique, count = f"{name} ({count})", count + 1
        taken.add(unique)
        result.append(unique)
    return tuple(result)
