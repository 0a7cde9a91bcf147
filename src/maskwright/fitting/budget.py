"""The budget of a run, the progress through it, and the learning rate as a function of that progress.

A two-hour run so warms up and decays within two hours. Schedules have the shapes of the original codes.
"""

import math
from dataclasses import dataclass
from typing import Literal

from maskwright.core.errors import RecipeError
from maskwright.core.text.amounts import pluralize
from maskwright.recipes.optimization import DECAY_SHARE

Unit = Literal["steps", "tokens", "seconds", "flops"]
Shape = Literal["linear", "linear_jump", "linear_product", "warmup_stable_decay"]

LAST_RATE = 0.001
"""Learning rate at the end of "warmup_stable_decay", as a share of its peak."""

_UNITS: dict[str, tuple[Unit, int]] = {
    "steps": ("steps", 1),
    "tokens": ("tokens", 1),
    "minutes": ("seconds", 60),
    "hours": ("seconds", 3600),
    "flops": ("flops", 1),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """Budget spent by a run so far: real tokens (no padding), seconds in the training loop over all sessions."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount, more than 0, of one unit."""

    unit: Unit
    amount: float

    @classmethod
    def of(cls, **amounts: float | None) -> "Budget | None":
        """Make a budget from steps, tokens, minutes, hours or flops, of which one is given; None if none is.

        Raises RecipeError if more than one is given, or the amount is not more than zero.
        """
        requested = {name: amount for name, amount in amounts.items() if amount is not None}
        if not requested:
            return None
        if len(requested) > 1:
            raise RecipeError(
                f"{len(requested)} budgets were given ({', '.join('--' + name for name in requested)})",
                hint="Give one: the others follow from it.",
            )
        ((name, amount),) = requested.items()
        if not 0 < amount < float("inf"):
            raise RecipeError(
                f"a budget of {amount:g} {name} has no training step",
                allowed="a number above 0",
                hint=f"For example `--{name} {'10' if name in ('minutes', 'steps') else '1'}`.",
            )
        unit, scale = _UNITS[name]
        return cls(unit, amount * scale)

    def progress(self, spent: Spent) -> float:
        """Share of the budget spent, in [0, 1]."""
        return min(1.0, float(getattr(spent, self.unit)) / self.amount)

    def __str__(self) -> str:
        match self.unit:
            case "seconds" if self.amount >= 7200:
                return f"{self.amount / 3600:.3g} hours"
            case "seconds" if self.amount >= 60:
                return f"{self.amount / 60:.3g} minute{'s' * (self.amount != 60)}"
            case "seconds":
                return f"{self.amount:.3g} second{'s' * (self.amount != 1)}"
            case "flops":
                return f"{self.amount:.3g} FLOPs"
            case _:
                return pluralize(round(self.amount), self.unit.removesuffix("s"))


def rate_factor(shape: Shape, progress: float, warmup_share: float, decay_share: float = DECAY_SHARE) -> float:
    """Return the learning rate as a share of its peak.

    Args:
        shape: "linear": rises to the peak at the end of warmup, then falls to 0 (fairseq
            lr_scheduler/polynomial_decay_schedule.py:74-90). "linear_jump": the decay is counted from the start, so
            the rate jumps to 1 - warmup_share when warmup ends (Google's BERT, optimization.py:25-54).
            "linear_product": both factors at once (ELECTRA, model/optimization.py:28-60). "warmup_stable_decay": rises
            to the peak, stays there, and at a share t of the last `decay_share` is 0.001 + 0.999 (1 - sqrt(t))
            (ModernBERT).
        progress: Share of the budget spent before this step, in [0, 1].
        warmup_share: In [0, 1).
    """
    rising = progress / warmup_share if warmup_share > 0 else 1.0
    match shape:
        case "linear":
            return rising if rising < 1 else (1 - progress) / (1 - warmup_share)
        case "linear_jump":
            return rising if rising < 1 else 1 - progress
        case "linear_product":
            return min(1.0, rising) * (1 - progress)
        case "warmup_stable_decay":
            decayed = max(0.0, 1 - (1 - progress) / decay_share)
            return rising if rising < 1 else LAST_RATE + (1 - LAST_RATE) * (1 - math.sqrt(decayed))
