"""ERNIE's masking: words, phrases and entities, one level after the other or mixed."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from maskwright.core.flat_arrays import concatenated_ranges
from maskwright.core.randomness import Draws, bound_of
from maskwright.core.types import BoolArray, Instances, IntArray, Selection
from maskwright.pretext.masking.base import Masking
from maskwright.pretext.masking.units import level_begins, whole_units
from maskwright.pretext.shares import Share, check_shares

_NOBODY = np.uint64((1 << 64) - 1)
_LEVELS = {"basic": "basic units", "phrase": "phrases", "entity": "entities"}


class LevelMasking(Masking):
    """Whole units of one level: basic units, phrases, entities (Sun et al. 2019, section 3.2).

    Basic units are the text's words as they are stored: characters in Chinese, words elsewhere. Outside phrases and
    entities a basic unit is the unit of every level.

    Each unit is drawn by itself with probability `rate`, and all its tokens are predicted; there is no budget, so
    counts vary (ernie: batching.py:25-117). `rounding`, `counted` and `max_targets`, which shape budgets, stay as they
    are.

    DEVIATION: where nothing is drawn in a sequence, its unit with the smallest number is, so that every sequence
    teaches something and no step is empty; the original computes such batches. Of n units none is drawn with
    probability .85^n, so it is short sequences that this matters to.

    Attributes:
        basic, phrase, entity: Shares of the levels; they add up to 1. The paper does not say how long its stages
            were; equal shares are ours.
        order: "staged": the shares are stretches of training, in that order. "mixed": each sequence draws its level
            by the shares. Where training has no stages (held-out text), staged levels are mixed too.
    """

    kind: Literal["levels"] = "levels"
    basic: Share = 1 / 3
    phrase: Share = 1 / 3
    entity: Share = 1 / 3
    order: Literal["staged", "mixed"] = "staged"

    @model_validator(mode="after")
    def _makes_sense(self) -> "LevelMasking":
        check_shares({level: getattr(self, level) for level in _LEVELS})
        for name in ("rounding", "counted", "max_targets"):
            default = type(self).model_fields[name].default
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name} shapes a budget, and units of levels are drawn without one; leave it {default!r}"
                )
        return self

    @property
    def _shares(self) -> dict[str, float]:
        """Shares of the levels that have any."""
        return {level: share for level in _LEVELS if (share := getattr(self, level)) > 0}

    @property
    def provides(self) -> frozenset[str]:
        """Units are runs of neighbouring tokens."""
        return frozenset({"contiguous_units"})

    @property
    def levels(self) -> frozenset[str]:
        """Levels that the text must carry; basic units always are there."""
        return frozenset(self._shares) - {"basic"}

    @property
    def stages(self) -> tuple[tuple[float, Masking], ...]:
        """One stretch of training a level, if staged."""
        if self.order == "mixed":
            return ((1.0, self),)
        nothing = dict.fromkeys(_LEVELS, 0.0)
        return tuple(
            (share, self.replace(order="mixed", **{**nothing, level: 1.0})) for level, share in self._shares.items()
        )

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The level of each stage, if there are several."""
        return tuple(_LEVELS[level] for level in self._shares) if len(self.stages) > 1 else ()

    def choose(self, instances: Instances, maskable: BoolArray, budgets: IntArray, draws: Draws) -> Selection:
        """Draw every unit by itself; `budgets` limit nothing (see `Masking.choose`)."""
        begins = self._begins(instances, draws)
        numbers = draws.bits_everywhere("masking unit", instances.cu_seqlens)
        numbers |= (begins & maskable) - np.uint64(1)  # `_NOBODY` where no unit begins that may be drawn
        chosen = numbers < bound_of(self.rate)
        _one_at_least(numbers, chosen, instances)
        return whole_units(begins, np.flatnonzero(chosen))

    def _begins(self, instances: Instances, draws: Draws) -> BoolArray:
        """Where units begin, each sequence on its own level. Shape (T,)."""
        begins = {
            level: instances.word_starts if level == "basic" else level_begins(instances, level)
            for level in self._shares
        }
        if len(begins) == 1:
            return next(iter(begins.values()))
        bounds = np.cumsum(list(self._shares.values()))
        drawn = np.searchsorted(bounds / bounds[-1], draws.per_instance("masking level"), side="right")
        level_of_token = np.repeat(drawn.astype(np.int8), instances.lengths)
        mixed = np.zeros(len(level_of_token), dtype=bool)
        for number, level_begin in enumerate(begins.values()):
            mixed |= level_begin & (level_of_token == number)
        return mixed


def _one_at_least(numbers: NDArray[np.uint64], chosen: BoolArray, instances: Instances) -> None:
    """Choose the unit with the smallest number in each sequence where none is chosen; in place."""
    empty = np.flatnonzero(np.add.reduceat(chosen, instances.cu_seqlens[:-1], dtype=np.int64) == 0)
    lengths = instances.lengths[empty]
    tokens, owners = concatenated_ranges(instances.cu_seqlens[empty], lengths), np.repeat(empty, lengths)
    order = np.lexsort((numbers[tokens], owners))
    smallest = tokens[order[np.cumsum(lengths) - lengths]]
    chosen[smallest[numbers[smallest] < _NOBODY]] = True
