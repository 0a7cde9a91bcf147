"""Sums of losses and other numbers over micro-batches and ranks, and what is reported of them."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from maskwright.core.tensors import LossTerm
from maskwright.training.ranks.distributed import all_reduce_sum

_TALLIES = "tallies of "

Numbers = Mapping[str, Mapping[str, float]]
"""Sums by group and name: groups "loss" and "correct" by objective, one group of tallies per objective."""


class WeightedLoss(Protocol):
    """A loss of a model, by the name that its counts and terms have; `Objective` is one."""

    @property
    def kind(self) -> str: ...

    @property
    def weight(self) -> float: ...

    def details(self, tallies: Mapping[str, float], count: int) -> dict[str, float]: ...


class Sums:
    """Sums of scalar tensors, in fp64, by group and name: adding does not wait for a GPU."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Tensor] = {}

    def add(self, group: str, name: str, value: Tensor) -> None:
        """Add a scalar tensor of any type, without its gradient."""
        exact, key = value.detach().double(), (group, name)
        self._sums[key] = self._sums[key] + exact if key in self._sums else exact

    def add_term(self, kind: str, term: LossTerm) -> None:
        """Add an objective's loss on one micro-batch."""
        self.add("loss", kind, term.total)
        if term.correct is not None:
            self.add("correct", kind, term.correct)
        for name, value in term.tallies.items():
            self.add(_TALLIES + kind, name, value)

    def total(self, group: str, name: str) -> Tensor:
        """Return one sum on its device, an fp64 scalar."""
        return self._sums[group, name]

    def all_reduce_sum(self) -> None:
        """Add the sums of all ranks, which have the same names."""
        all_reduce_sum(list(self._sums.values()))

    def to_host(self) -> "HostSums":
        """Start copying all sums to the host."""
        return HostSums(self._sums)


class HostSums:
    """Sums on their way to the host; further work of a GPU is not waited for."""

    def __init__(self, sums: Mapping[tuple[str, str], Tensor]) -> None:
        self._keys = list(sums)
        self._values = torch.stack(list(sums.values())) if sums else torch.empty(0, dtype=torch.float64)
        self._copied: torch.cuda.Event | None = None
        if self._values.is_cuda:
            pinned = torch.empty(self._values.shape, dtype=self._values.dtype, pin_memory=True)
            self._values = pinned.copy_(self._values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    @property
    def is_done(self) -> bool:
        """Whether reading waits for nothing."""
        return self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def read(self) -> Numbers:
        """Wait for the sums and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        numbers: dict[str, dict[str, float]] = {"loss": {}, "correct": {}}
        for (group, name), value in zip(self._keys, self._values.tolist(), strict=True):
            numbers.setdefault(group, {})[name] = value
        return numbers


def details_of(
    objectives: Iterable[WeightedLoss], counts: Mapping[str, int], numbers: Numbers
) -> dict[str, dict[str, float]]:
    """Return the shares to report of each objective that has any, from its tallies and its number of predictions."""
    details = {
        each.kind: each.details(numbers.get(_TALLIES + each.kind, {}), counts[each.kind])
        for each in objectives
        if counts.get(each.kind)
    }
    return {kind: shares for kind, shares in details.items() if shares}
