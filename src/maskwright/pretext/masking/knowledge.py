"""ERNIE's knowledge masking: words, phrases and entities, in stages or mixed."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import model_validator

from maskwright.core.randomness import RandomNumbers, as_uniform
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import CONTIGUOUS_UNITS, Masking, Share, check_shares
from maskwright.pretext.masking.units import span_begins, unit_ends

_UNITS = {"basic": "basic units", "phrase": "phrases", "entity": "entities"}


class KnowledgeMasking(Masking):
    """Whole units of one kind: basic units, phrases or entities (Sun et al. 2019, section 3.2).

    Basic units are the words of the stored text: characters in Chinese, words elsewhere. Outside phrases and entities
    a basic unit is the unit of every kind.

    Each unit is selected independently with probability `rate`, with all its tokens; there is no budget, so counts
    vary (ernie: batching.py:25-117). `rounding`, `rate_relative_to` and `max_targets`, which define budgets,
    keep their defaults.

    DEVIATION: if no unit of a sequence is selected, its unit with the smallest random number is, so that every sequence
    has a target and no step is empty; the original computes such batches. None of n units is selected with
    probability .85^n, so this matters for short sequences.

    Attributes:
        basic, phrase, entity: Shares of the kinds of units; they sum to 1. The paper does not state the length of its
            stages; the defaults are equal.
        order: "staged": the shares are consecutive stages of training. "mixed": each sequence samples its kind by the
            shares. Held-out text, which has no stages, is always mixed.
    """

    kind: Literal["levels"] = "levels"
    provides: ClassVar[frozenset[str]] = CONTIGUOUS_UNITS
    basic: Share = 1 / 3
    phrase: Share = 1 / 3
    entity: Share = 1 / 3
    order: Literal["staged", "mixed"] = "staged"

    @model_validator(mode="after")
    def _makes_sense(self) -> "KnowledgeMasking":
        check_shares({unit: getattr(self, unit) for unit in _UNITS})
        for name in ("rounding", "rate_relative_to", "max_targets"):
            default = type(self).model_fields[name].default
            if getattr(self, name) != default:
                raise ValueError(f"{name} defines a budget, and masking 'levels' has none; leave it {default!r}")
        return self

    @property
    def _shares(self) -> dict[str, float]:
        """Shares of the kinds that are used."""
        return {unit: share for unit in _UNITS if (share := getattr(self, unit)) > 0}

    @property
    def span_kinds(self) -> frozenset[str]:
        return frozenset(self._shares) - {"basic"}

    @property
    def stages(self) -> tuple[tuple[float, Masking], ...]:
        if self.order == "mixed":
            return ((1.0, self),)
        nothing = dict.fromkeys(_UNITS, 0.0)
        return tuple(
            (share, self.replace(order="mixed", **{**nothing, unit: 1.0})) for unit, share in self._shares.items()
        )

    @property
    def stage_names(self) -> tuple[str, ...]:
        return tuple(_UNITS[unit] for unit in self._shares) if len(self.stages) > 1 else ()

    def choose(
        self, instances: Instances, maskable: BoolArray, rng: RandomNumbers, token_counts: IntArray | None
    ) -> Selection:
        begins = self._begins(instances, rng)
        numbers = as_uniform(rng.bits_everywhere("masking unit", instances.cu_seqlens))
        numbers[~(begins & maskable)] = 1.0
        smallest = np.minimum.reduceat(numbers, instances.cu_seqlens[:-1])
        # At least one unit of a sequence is below its limit, unless it has none.
        limits = np.maximum(self.rate, np.nextafter(smallest, 1.0))
        starts = np.flatnonzero(numbers < np.repeat(limits, instances.lengths))
        return Selection(starts, unit_ends(begins)[starts])

    def _begins(self, instances: Instances, rng: RandomNumbers) -> BoolArray:
        """Return where units begin, each sequence by its kind. Shape (T,)."""
        begins = {
            unit: instances.word_starts if unit == "basic" else span_begins(instances, unit) for unit in self._shares
        }
        if len(begins) == 1:
            return next(iter(begins.values()))
        bounds = np.cumsum(list(self._shares.values()))
        sampled = np.searchsorted(bounds / bounds[-1], rng.per_instance("masking level"), side="right")
        unit_of_token = np.repeat(sampled.astype(np.int8), instances.lengths)
        mixed = np.zeros(len(unit_of_token), dtype=bool)
        for number, unit_begins in enumerate(begins.values()):
            mixed |= unit_begins & (unit_of_token == number)
        return mixed
