"""Tables of results as Markdown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.runner import Outcome, Spread

_SMALLEST = 4


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text. The first `words` columns hold words and stand to the left, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def markdown(self) -> str:
        """Return the table with its title above."""
        rules = ["---" if place < self.words else "---:" for place in range(len(self.columns))]
        lines = [_line(self.columns), _line(rules), *(_line(row) for row in self.rows)]
        return "\n".join([*([f"**{self.title}**", ""] if self.title else []), *lines])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many digits: 14229.3 -> "14,200", 0.9 -> "0.900", 0.0000012 -> "1.20e-06"."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = math.floor(math.log10(abs(rounded)))
    if exponent < -_SMALLEST:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def spread(value: Spread | None) -> str:
    """Write a median with its quartiles in brackets."""
    return "" if value is None else f"{number(value.median)} ({number(value.low)}-{number(value.high)})"


def compare(
    title: str, outcomes: Sequence[Outcome], unit: str, *, extra: Sequence[tuple[str, str, float]] = ()
) -> Table:
    """Make the usual table of a case: speed of each contender, and how many times as fast the first one is.

    Args:
        title: The case.
        outcomes: The contender that others are compared with comes first.
        unit: Of the speed.
        extra: Further columns: heading, key of the figure, factor.
    """
    own, rows = outcomes[0], []
    for each in outcomes:
        cells = [each.name, spread(Spread.of(each.speeds)) if each.rounds else f"not measured: {each.problem}"]
        for _, key, factor in extra:
            value = each.median(key)
            cells.append("" if value is None else number(factor * value))
        rows.append([*cells, "" if each is own else spread(own.ratio(each))])
    return Table(title, ("contender", unit, *(name for name, *_ in extra), f"{own.name} / this"), rows)
