"""Adding up what micro-batches give, on their own device, to be read once and divided once."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from maskwright.core.tensors import LossTerm

_TALLIES = "tallies of "


class WeightedLoss(Protocol):
    """A loss of a model, by the name that its counts and terms have; `Objective` is one."""

    @property
    def kind(self) -> str:
        """Name of the loss."""

    @property
    def weight(self) -> float:
        """Factor of its mean in the total."""

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]:
        """Return shares to report (`Objective.details`)."""


class Sums:
    """Sums of scalar tensors by name, in fp64 where the tensors are: adding does not wait for a GPU, reading does."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}

    @classmethod
    def of(cls, values: Mapping[str, Tensor]) -> "Sums":
        """Return sums of one part each."""
        sums = cls()
        for name, value in values.items():
            sums.add(name, value)
        return sums

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar tensor of any type; its gradient is left out."""
        exact = value.detach().double()
        self._sums[name] = self._sums[name] + exact if name in self._sums else exact

    def total(self, name: str) -> Tensor:
        """Return one sum where it is, an fp64 scalar."""
        return self._sums[name]

    def read(self) -> dict[str, float]:
        """Return all sums, in the order of their first parts; a GPU is waited for once."""
        return Later({"": self}).read()[""]

    def totals(self) -> dict[str, Tensor]:
        """Return all sums where they are, in the order of their first parts."""
        return dict(self._sums)


class Tallies:
    """Sums of `LossTerm.tallies` by objective and name."""

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}

    def add(self, kind: str, term: LossTerm) -> None:
        """Add one micro-batch of an objective."""
        sums = self._sums.setdefault(kind, Sums())
        for name, value in term.tallies.items():
            sums.add(name, value)

    def by_kind(self) -> dict[str, Sums]:
        """Return the sums of each objective, under a name that `details_of` knows."""
        return {_TALLIES + kind: sums for kind, sums in self._sums.items()}

    def details(self, objectives: Iterable[WeightedLoss], counts: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """Return each objective's shares, for those that have any."""
        return details_of(objectives, counts, Later(self.by_kind()).read())


def details_of(
    objectives: Iterable[WeightedLoss], counts: Mapping[str, int], numbers: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Return each objective's shares, for those that have any.

    Args:
        objectives: Whose.
        counts: Predictions of each, by kind.
        numbers: Sums that were read, `Tallies.by_kind` among them.
    """
    told = {
        each.kind: each.details(numbers.get(_TALLIES + each.kind, {}), counts[each.kind])
        for each in objectives
        if counts.get(each.kind)
    }
    return {kind: shares for kind, shares in told.items() if shares}


class Later:
    """Sums on their way to the host.

    A GPU copies them when it comes to it; what it is sent meanwhile is not waited for.
    """

    def __init__(self, groups: Mapping[str, Sums]) -> None:
        self._names = {group: list(sums.totals()) for group, sums in groups.items()}
        tensors = [each for sums in groups.values() for each in sums.totals().values()]
        self._values = torch.stack(tensors) if tensors else torch.empty(0, dtype=torch.float64)
        self._copied: torch.cuda.Event | None = None
        if self._values.is_cuda:
            here = torch.empty(self._values.shape, dtype=self._values.dtype, pin_memory=True)
            here.copy_(self._values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
            self._values = here

    @property
    def is_there(self) -> bool:
        """Whether reading waits for nothing."""
        return self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def read(self) -> dict[str, dict[str, float]]:
        """Wait for the sums and return them, by group and name."""
        if self._copied is not None:
            self._copied.synchronize()
        values = iter(self._values.tolist())
        return {group: {name: next(values) for name in names} for group, names in self._names.items()}
