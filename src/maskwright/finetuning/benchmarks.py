"""Benchmarks by name."""

from collections.abc import Mapping
from types import MappingProxyType

from maskwright.core.errors import RecipeError, unknown_name
from maskwright.finetuning.benchmark import SPLITS, Benchmark, Split
from maskwright.finetuning.benchmark_table import ALIASES, ROWS

__all__ = ["BENCHMARKS", "SPLITS", "Benchmark", "Split", "benchmark"]

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({row.name: row for row in ROWS})
"""All benchmarks by name, in the order of their table."""


def benchmark(name: str) -> Benchmark:
    """Return a benchmark by name; capitals, spaces, dots and underscores do not matter ("SST2", "squad_v1.1").

    Raises:
        RecipeError: If there is none; the nearest name is suggested.

    Example:
        >>> benchmark("sst-2").metrics
        ('accuracy',)
    """
    if (found := BENCHMARKS.get(name)) is not None:
        return found
    plain = {_plain(known): known for known in (*ALIASES, *BENCHMARKS)}
    if (written := plain.get(_plain(name))) is not None:
        return BENCHMARKS[ALIASES.get(written, written)]
    problem, allowed, todo = unknown_name("benchmark", name, BENCHMARKS)
    raise RecipeError(problem, allowed=allowed, todo=todo)


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
