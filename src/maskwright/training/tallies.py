"""Adding up what objectives count besides right predictions, over micro-batches, to be divided once."""

from collections.abc import Iterable, Mapping

from maskwright.core.tensors import LossTerm
from maskwright.pretext.objectives.base import Objective


class Tallies:
    """Sums of `LossTerm.tallies` by objective and name."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, float]] = {}

    def add(self, kind: str, term: LossTerm) -> None:
        """Add one micro-batch of an objective."""
        sums = self._sums.setdefault(kind, {})
        for name, value in term.tallies.items():
            sums[name] = sums.get(name, 0.0) + float(value)

    def details(self, objectives: Iterable[Objective], counts: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return each objective's shares, for those that have any."""
        told = {
            each.kind: each.details(self._sums.get(each.kind, {}), counts[each.kind])
            for each in objectives
            if counts.get(each.kind)
        }
        return {kind: shares for kind, shares in told.items() if shares}
