"""Rows that are left out: each with its place and reason, and never most of a file."""

from collections import Counter
from typing import Literal

from maskwright.core.amounts import counted
from maskwright.core.errors import DataError
from maskwright.finetuning.examples import Skipped

_SHOWN = 3


class Skips:
    """Collects the rows of one file that are left out.

    Args:
        name: The file, for messages.
        bad_rows: Whether the first bad row refuses the whole file.
    """

    def __init__(self, name: str, bad_rows: Literal["skip", "refuse"] = "skip") -> None:
        self.name = name
        self._refuse = bad_rows == "refuse"
        self._bad: list[Skipped] = []
        self._by_rule: list[Skipped] = []

    def add(self, place: str, reason: str) -> None:
        """Leave out a bad row.

        Raises:
            DataError: If bad rows are to refuse the file.
        """
        if self._refuse:
            raise DataError(f"{place}: {reason}", todo="Mend the row, or have bad rows skipped and counted.")
        self._bad.append(Skipped(place, reason))

    def add_by_rule(self, place: str, reason: str) -> None:
        """Leave out a row that is not bad, only not wanted."""
        self._by_rule.append(Skipped(place, reason))

    def finished(self, kept: int) -> tuple[Skipped, ...]:
        """Return all rows left out, once it is known how many were kept.

        Raises:
            DataError: If nothing was kept, or more rows are bad than good: then the file is something else.
        """
        if len(self._bad) > kept:
            raise DataError(
                f"{self.name}: {len(self._bad)} of {len(self._bad) + kept} rows cannot be read; {self._reasons()}",
                todo="Check that this is the right file, and the format, columns and quoting it was read with.",
            )
        if not kept:
            left = f" ({len(self._by_rule)} rows were left out: {self._by_rule[0].reason})" if self._by_rule else ""
            raise DataError(f"{self.name} holds no examples{left}", todo="Give a file with at least one example.")
        return (*self._bad, *self._by_rule)

    def _reasons(self) -> str:
        counts = Counter(skipped.reason for skipped in self._bad)
        first = {skipped.reason: skipped.place for skipped in reversed(self._bad)}
        shown = [
            f"{reason} ({counted(count, 'time')}, first at {first[reason]})"
            for reason, count in counts.most_common(_SHOWN)
        ]
        return "; ".join(shown) + (f"; and {len(counts) - _SHOWN} other reasons" if len(counts) > _SHOWN else "")
