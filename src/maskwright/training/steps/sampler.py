"""The endless, seekable order of instances over sources and epochs.

It is a function of (seed, epoch, position): a resumed run continues at its cursor at once, and the order does not
depend on workers, ranks or micro-batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from maskwright.core.errors import DataError
from maskwright.core.randomness import Permutation, integer_key
from maskwright.core.types import Documents, IntArray, Plan

_GOLDEN_RATIO = 0.6180339887498949
_SOURCE_STRIDE = 1 << 40
"""Keeps instance numbers of different sources apart: a source has fewer than 2**40 instances."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position in one source: `position` instances of epoch `epoch` have been read."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in a stream: instances read in all, the position in each source, and epochs of the first source.

    An epoch that was left unfinished when the length changed counts as a fraction.
    """

    num_read: int
    positions: tuple[SourcePosition, ...]
    epochs: float = 0.0

    def to_json(self) -> dict[str, Any]:
        positions = [[current.epoch, current.position] for current in self.positions]
        return {"num_read": self.num_read, "places": positions, "epochs": self.epochs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Cursor":
        return cls(data["num_read"], tuple(SourcePosition(*current) for current in data["places"]), data["epochs"])


@dataclass(frozen=True, slots=True)
class Rows:
    """Some instances, not yet laid out, and the epochs of the first source after them, as a fraction.

    Each row's masks are keyed by `mask_sample`, the epoch (or epoch modulo k), and `index`, the row's number within
    that epoch, unique over sources; both have shape (B,).
    """

    plan: Plan
    mask_sample: IntArray
    index: IntArray
    epochs: float

    def part(self, numbers: IntArray) -> "Rows":
        return Rows(self.plan.rows(numbers), self.mask_sample[numbers], self.index[numbers], self.epochs)


def mask_sample_of(epoch: int, copies: int | None) -> int:
    """Return the number of the mask sample that an epoch (from 0) uses (`MaskSampling.copies`)."""
    return epoch if copies is None else epoch % copies


class InstanceSampler:
    """Instances of one or several sources, shuffled anew in every epoch.

    Args:
        weights: Share of instances from each source (any scale); None for one source.
        plan: Plans one epoch of some documents for a `mask_sample` (`Format.plan` with its length and seed).
        mask_copies: Number of mask samples (static masks); None for one in every epoch (dynamic masks).
    """

    def __init__(
        self,
        sources: Sequence[Documents],
        weights: Sequence[float] | None,
        plan: Callable[..., Plan],
        mask_copies: int | None,
        seed: int,
    ) -> None:
        self.sources = tuple(sources)
        shares = np.asarray(weights if weights is not None else [1.0] * len(sources), dtype=np.float64)
        self._upper = np.cumsum(shares / shares.sum())
        self._plan, self._mask_copies, self.seed = plan, mask_copies, seed
        self._plans: dict[int, tuple[int, Plan]] = {}

    def start(self) -> Cursor:
        """Return the cursor before the first instance."""
        return Cursor(0, tuple(SourcePosition() for _ in self.sources))

    def next_epoch(self, cursor: Cursor) -> Cursor:
        """Return the cursor at the beginning of the next epoch of every source (another length phase begins)."""
        return Cursor(
            cursor.num_read, tuple(SourcePosition(current.epoch + 1, 0) for current in cursor.positions), cursor.epochs
        )

    def read(self, cursor: Cursor, count: int) -> tuple[Rows, Cursor]:
        """Return the next `count` instances and the cursor after them."""
        sources = self._pick_sources(cursor.num_read, count)
        slots: list[IntArray] = []
        parts: list[tuple[Plan, IntArray, IntArray]] = []
        positions = list(cursor.positions)
        epochs = cursor.epochs
        for source, current in enumerate(cursor.positions):
            picked = np.flatnonzero(sources == source)
            done = 0
            while done < len(picked):
                plan = self._planned(source, current.epoch)
                take = min(len(picked) - done, len(plan) - current.position)
                order = Permutation(len(plan), integer_key(self.seed, "order", current.epoch, source))
                numbers = order(np.arange(current.position, current.position + take))
                slots.append(picked[done : done + take])
                mask_sample = np.full(take, mask_sample_of(current.epoch, self._mask_copies), dtype=np.int64)
                parts.append((plan.rows(numbers), mask_sample, numbers + source * _SOURCE_STRIDE))
                done += take
                current = SourcePosition(current.epoch, current.position + take)
                if source == 0:
                    epochs += take / len(plan)
                if current.position == len(plan):
                    current = SourcePosition(current.epoch + 1, 0)
            positions[source] = current
        # Each row where its source was picked.
        back = np.argsort(np.concatenate(slots), kind="stable")
        plans, mask_samples, numbers_of = zip(*parts, strict=True)
        columns = {each.name: np.concatenate([getattr(plan, each.name) for plan in plans]) for each in fields(Plan)}
        rows = Rows(
            Plan(**columns).rows(back), np.concatenate(mask_samples)[back], np.concatenate(numbers_of)[back], epochs
        )
        return rows, Cursor(cursor.num_read + count, tuple(positions), epochs)

    def _pick_sources(self, num_read: int, count: int) -> IntArray:
        if len(self.sources) == 1:
            return np.zeros(count, dtype=np.int64)
        # A golden-ratio sequence approximates the shares at every length without state.
        numbers = (np.arange(num_read, num_read + count, dtype=np.float64) * _GOLDEN_RATIO) % 1.0
        return np.minimum(np.searchsorted(self._upper, numbers, side="right"), len(self.sources) - 1)

    def _planned(self, source: int, epoch: int) -> Plan:
        mask_sample = mask_sample_of(epoch, self._mask_copies)
        kept = self._plans.get(source)
        if kept is None or kept[0] != mask_sample:
            plan = self._plan(self.sources[source], mask_sample=mask_sample)
            if not len(plan):
                raise DataError(
                    "the corpus gives no training sequence in this input format",
                    hint="Give more text, or choose another format, e.g. `--set format=full_sentences`",
                )
            kept = self._plans[source] = (mask_sample, plan)
        return kept[1]
