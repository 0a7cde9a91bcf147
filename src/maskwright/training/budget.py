"""The budget of a run and the progress through it.

The schedule is a function of progress through the budget, so a two-hour run warms up and decays within two hours.
"""

from dataclasses import dataclass
from typing import Literal

from maskwright.core.amounts import counted
from maskwright.core.errors import RecipeError

Unit = Literal["steps", "tokens", "seconds", "flops"]

_UNITS: dict[str, tuple[Unit, int]] = {
    "steps": ("steps", 1),
    "tokens": ("tokens", 1),
    "minutes": ("seconds", 60),
    "hours": ("seconds", 3600),
    "flops": ("flops", 1),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has spent so far: real tokens (no padding), seconds in the training loop over all sessions."""

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
    def of(
        cls,
        *,
        steps: int | None = None,
        tokens: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        flops: float | None = None,
    ) -> "Budget | None":
        """Make a budget from the one argument that is given; None if none is.

        Raises:
            RecipeError: If more than one is given, or the amount is not more than zero.
        """
        named = {"steps": steps, "tokens": tokens, "minutes": minutes, "hours": hours, "flops": flops}
        given = {name: value for name, value in named.items() if value is not None}
        if not given:
            return None
        if len(given) > 1:
            raise RecipeError(
                f"{len(given)} budgets were given ({', '.join('--' + name for name in given)})",
                todo="Give one: the others follow from it.",
            )
        ((name, amount),) = given.items()
        if not 0 < amount < float("inf"):
            raise RecipeError(
                f"a budget of {amount:g} {name} trains nothing",
                allowed="a number above 0",
                todo=f"For example `--{name} {'10' if name in ('minutes', 'steps') else '1'}`.",
            )
        unit, scale = _UNITS[name]
        return cls(unit, amount * scale)

    def progress(self, spent: Spent) -> float:
        """Share of the budget spent, in [0, 1]."""
        used = {"steps": spent.steps, "tokens": spent.tokens, "seconds": spent.seconds, "flops": spent.flops}
        return min(1.0, used[self.unit] / self.amount)

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
                return counted(round(self.amount), self.unit.removesuffix("s"))
