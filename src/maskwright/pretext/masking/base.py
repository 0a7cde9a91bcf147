"""The door of the masking room: which tokens are to be predicted.

`Masking.select` is written once and owns the budget: how many tokens each sequence is to give up, and what may be
chosen. Members say what a unit is and how units are drawn: until the budget is met, or, under `LevelMasking`, each by
itself.
"""

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from maskwright.core.randomness import Draws
from maskwright.core.spec import Spec
from maskwright.core.types import BoolArray, Instances, IntArray, Selection


class Masking(Spec):
    """Which tokens. Members are frozen values; `choose` is the one method they write.

    Attributes:
        kind: The member's name in recipes.
        rate: Share of a sequence's tokens to select, in (0, 1).
        rounding: How rate x tokens becomes a whole number, at least 1: "half_even" (Python's round: BERT,
            ALBERT), "random" (floor(x + U[0,1)): RoBERTa), "up" (SpanBERT), "down".
        counted: What the rate counts: "all" tokens with specials (BERT, RoBERTa) or "ordinary" tokens only.
        candidates: What may be selected: "ordinary" tokens, or "all" including specials (RoBERTa).
        max_targets: Most tokens selected per sequence; None for no cap (BERT's max_predictions_per_seq).
    """

    kind: str
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    rounding: Literal["half_even", "random", "up", "down"] = "half_even"
    counted: Literal["all", "ordinary"] = "all"
    candidates: Literal["ordinary", "all"] = "ordinary"
    max_targets: Annotated[int, Field(ge=1)] | None = None

    @property
    def provides(self) -> frozenset[str]:
        """Facts about units that objectives ask for in `needs` ("contiguous_units")."""
        return frozenset()

    @property
    def levels(self) -> frozenset[str]:
        """Levels of units that the text must carry ("phrase", "entity"): what `choose` reads of `level_starts`."""
        return frozenset()

    @property
    def uses_token_counts(self) -> bool:
        """Whether it asks how often each id stands in the corpus (`token_counts`)."""
        return False

    @property
    def stages(self) -> tuple[tuple[float, "Masking"], ...]:
        """Stretches of training, as shares of the budget that add up to 1, and the masking in each; one by default."""
        return ((1.0, self),)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """What is masked in each stage, in words, where there are several; empty where there is one."""
        return ()

    def select(self, instances: Instances, draws: Draws, token_counts: IntArray | None = None) -> Selection:
        """Select the units to predict in each sequence; the same draws give the same units.

        No special token is selected unless `candidates` is "all". At least one unit is selected in every sequence
        that has one within its budget; no sequence gives up more than that, except under `LevelMasking`, which has
        no budget.

        Args:
            instances: The flat batch.
            draws: The keyed random numbers.
            token_counts: Shape (V,), how often each id stands in the corpus, for maskings that ask; None where it is
                not known.
        """
        maskable = np.ones(len(instances.ids), dtype=bool) if self.candidates == "all" else ~instances.special
        return self.choose_knowing(instances, maskable, self.budgets(instances, draws), draws, token_counts)

    def budgets(self, instances: Instances, draws: Draws) -> IntArray:
        """How much each sequence gives up, in what `sizes` counts (tokens). Shape (B,), int64, at least 1."""
        exact = self.rate * self.sizes(instances)
        match self.rounding:
            case "half_even":
                wanted = np.rint(exact)
            case "random":
                wanted = np.floor(exact + draws.per_instance("masking budget"))
            case "up":
                wanted = np.ceil(exact)
            case "down":
                wanted = np.floor(exact)
        counts = np.maximum(1, wanted.astype(np.int64))
        return counts if self.max_targets is None else np.minimum(counts, self.max_targets)

    def sizes(self, instances: Instances) -> IntArray:
        """How much each sequence has of what the rate counts: its tokens. Shape (B,)."""
        if self.counted == "all":
            return instances.lengths
        return self._count(instances, np.ones(len(instances.ids), dtype=bool))

    def _count(self, instances: Instances, marks: BoolArray) -> IntArray:
        """Count marked tokens in each sequence, leaving out specials unless they are counted. Shape (B,)."""
        if self.counted == "ordinary":
            marks = marks & ~instances.special
        return np.add.reduceat(marks, instances.cu_seqlens[:-1], dtype=np.int64)

    @abstractmethod
    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Draw units among the maskable tokens until each sequence's budget is met.

        Args:
            instances: The flat batch.
            maskable: Shape (T,), True where a token may be selected.
            budgets: Shape (B,), what each sequence gives up at most.
            draws: The keyed random numbers; use purposes that begin with "masking".
        """

    def choose_knowing(
        self,
        instances: Instances,
        maskable: BoolArray,
        budgets: IntArray,
        draws: Draws,
        token_counts: IntArray | None,
    ) -> Selection:
        """Draw units with the corpus's counts at hand; by default they change nothing (see `choose`)."""
        return self.choose(instances, maskable, budgets, draws)
