"""What a run may spend, and how far through it the run is.

The schedule is a function of progress through the budget, so a two-hour run warms up and decays within two hours.
"""

from dataclasses import dataclass
from typing import Literal

from maskwright.core.errors import RecipeError

Unit = Literal["steps", "tokens", "seconds", "flops"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has spent so far.

    Attributes:
        steps: Optimizer steps.
        tokens: Real tokens read, padding not counted.
        seconds: Wall-clock seconds inside the training loop, over all sessions of the run.
        flops: Training floating-point operations by the formula of `encoder.sizes`.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of one unit.

    Attributes:
        unit: What is counted.
        amount: How much may be spent; more than 0.
    """

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
        given = {
            name: value
            for name, value in (
                ("steps", steps),
                ("tokens", tokens),
                ("minutes", minutes),
                ("hours", hours),
                ("flops", flops),
            )
            if value is not None
        }
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
                todo=f"For example `--{name} {'10' if name in ('minutes', 'steps') else '1'}`",
            )
        match name:
            case "minutes":
                return cls("seconds", amount * 60)
            case "hours":
                return cls("seconds", amount * 3600)
            case "steps" | "tokens" | "flops":
                return cls(name, amount)
        raise AssertionError(name)

    def progress(self, spent: Spent) -> float:
        """Share of the budget spent, in [0, 1]."""
        used = {"steps": spent.steps, "tokens": spent.tokens, "seconds": spent.seconds, "flops": spent.flops}
        return min(1.0, used[self.unit] / self.amount)

    def __str__(self) -> str:
        match self.unit:
            case "seconds":
                if self.amount >= 7200:
                    return f"{self.amount / 3600:.3g} hours"
                return f"{self.amount / 60:.3g} minutes"
            case "steps":
                return f"{self.amount:,.0f} steps"
            case "tokens":
                return f"{self.amount:,.0f} tokens"
            case "flops":
                return f"{self.amount:.3g} FLOPs"
