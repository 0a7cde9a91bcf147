"""What a row found: tables for people, measurements for programs, checks that must hold. Printed and kept as JSON."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.cli import output
from maskwright.core.files import read_json, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of cells as text.

    Attributes:
        title: A line above; "" for none.
        columns: Headings.
        rows: Cells.
        words: Numbers of the columns that hold words; all others hold numbers and stand to the right.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold for the figures to mean what they say.

    Attributes:
        what: What was looked at.
        found: What it was.
        allowed: What would have been right.
        passed: Whether it was.
    """

    what: str
    found: str
    allowed: str
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A plot: how something grows.

    Attributes:
        name: Of the picture's file.
        title: Above the plot.
        x: What the horizontal axis shows, with its unit.
        y: What the vertical axis shows, with its unit.
        series: Points by line.
        logarithmic: Which axes are logarithmic: "", "x", "y" or "xy".
    """

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, tuple[tuple[float, float], ...]]
    logarithmic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a row found.

    Attributes:
        tables: For people.
        measurements: Every raw figure: seconds of each round, tokens, counts.
        checks: What must hold.
        notes: What a reader must know to read the figures right.
        curves: Plots.
    """

    tables: tuple[Table, ...]
    measurements: tuple[Mapping[str, Any], ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = field(default=())

    @property
    def measured(self) -> bool:
        """Whether anything was: a machine may lack what a row needs, and the report then has notes alone."""
        return bool(self.tables or self.measurements or self.checks or self.curves)

    @property
    def sound(self) -> bool:
        """Whether all checks hold."""
        return all(check.passed for check in self.checks)


def show(report: Report) -> None:
    """Print a report."""
    for table in report.tables:
        right = [place for place in range(len(table.columns)) if place not in table.words]
        output.table(table.columns, table.rows, title=table.title, right=right)
    if report.checks:
        output.table(
            ("check", "found", "allowed", ""),
            [
                (check.what, check.found, check.allowed, "holds" if check.passed else output.strong("FAILS"))
                for check in report.checks
            ],
        )
    for note in report.notes:
        output.note(note)


def keep(report: Report, folder: Path, name: str, facts: Mapping[str, Any]) -> Path:
    """Write a report as JSON.

    Args:
        report: What was found.
        folder: Where results are kept.
        name: The row's.
        facts: About the machine and the settings (`machine.facts`).

    Returns:
        The file.
    """
    path = folder / f"{name}.json"
    write_json(path, {"row": name, **facts, **dataclasses.asdict(report)})
    return path


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what `keep` wrote, None if there is nothing."""
    path = folder / f"{name}.json"
    kept: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return kept
