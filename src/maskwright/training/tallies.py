"""Adding up what micro-batches give, on their own device, to be read once and divided once."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from maskwright.core.tensors import LossTerm
from maskwright.pretext.objectives.base import Objective


class Sums:
    """Sums of scalar tensors by name, in fp64 where the tensors are: adding does not wait for a GPU, reading does."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar tensor of any type; its gradient is left out."""
        exact = value.detach().double()
        self._sums[name] = self._sums[name] + exact if name in self._sums else exact

    def total(self, name: str) -> Tensor:
        """Return one sum where it is, an fp64 scalar."""
        return self._sums[name]

    def read(self) -> dict[str, float]:
        """Return all sums, in the order of their first parts; a GPU is waited for once."""
        values = torch.stack(list(self._sums.values())).tolist() if self._sums else []
        return dict(zip(self._sums, values, strict=True))


class Tallies:
    """Sums of `LossTerm.tallies` by objective and name."""

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}

    def add(self, kind: str, term: LossTerm) -> None:
        """Add one micro-batch of an objective."""
        sums = self._sums.setdefault(kind, Sums())
        for name, value in term.tallies.items():
            sums.add(name, value)

    def details(self, objectives: Iterable[Objective], counts: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return each objective's shares, for those that have any."""
        told = {
            each.kind: each.details(self._sums.get(each.kind, Sums()).read(), counts[each.kind])
            for each in objectives
            if counts.get(each.kind)
        }
        return {kind: shares for kind, shares in told.items() if shares}
