"""Which epoch's weights are kept, and when training ends before its time: a rule on the development examples alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How a model stood on the development examples at the end of a pass.

    Attributes:
        step: Steps done.
        epoch: Passes done.
        metrics: The task's, the main one first.
    """

    step: int
    epoch: float
    metrics: Mapping[str, float]

    @property
    def main(self) -> float:
        """The main metric; more is better. A correlation that is not defined counts as the worst."""
        value = next(iter(self.metrics.values()))
        return -math.inf if math.isnan(value) else value

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def best_of(history: Sequence[Measured]) -> int:
    """Return the number of the best measurement; of equal ones the last.

    Few development examples give many equal scores; of those the weights that learnt longer, at a lower rate, are less
    the work of chance.

    Args:
        history: One or more, in order.
    """
    return max(range(len(history)), key=lambda number: (history[number].main, number))


def should_stop(history: Sequence[Measured], patience: int) -> bool:
    """Say whether so many measurements in a row were worse than the best before them.

    Args:
        history: In order; may be empty.
        patience: How many; 0 never stops.
    """
    return bool(patience and history) and len(history) - 1 - best_of(history) >= patience
