"""What a row of published settings is, and the numbers of examples that tell its steps as passes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from maskwright.core.types import HeadKind

_ANY_WIDTH = (0, 1 << 30)
SMALL, LARGE = (0, 512), (1024, 1 << 30)
"""Widths of the models that are called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row.

    Attributes:
        system: Whose settings they are.
        benchmarks: For which benchmarks; empty for all.
        heads: For tasks with which heads; empty for all.
        widths: For models of which hidden size, least and most.
        settings: Fields of `Hyperparameters`.
        task_fields: Fields of the task.
        source: Paper and table, or repository and file.
    """

    ALL_WIDTHS: ClassVar[tuple[int, int]] = _ANY_WIDTH

    system: str
    benchmarks: tuple[str, ...] = ()
    heads: tuple[HeadKind, ...] = ()
    widths: tuple[int, int] = _ANY_WIDTH
    settings: Mapping[str, Any] = field(default_factory=dict)
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    source: str


TRAINING_EXAMPLES: Mapping[str, int] = MappingProxyType(
    {
        "cola": 8_551,
        "sst-2": 67_349,
        "mrpc": 3_668,
        "sts-b": 5_749,
        "qqp": 363_846,
        "mnli": 392_702,
        "qnli": 104_743,
        "rte": 2_490,
        "wnli": 635,
        "squad-1.1": 87_599,
        "squad-2.0": 130_319,
        "race": 87_866,
    }
)
"""Examples in the published training files, to tell steps as passes."""


def passes(benchmark: str, steps: int, batch: int) -> float:
    """Return the passes over a benchmark's published training file that so many steps are."""
    return round(steps * batch / TRAINING_EXAMPLES[benchmark], 2)
