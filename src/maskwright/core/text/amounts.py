"""Numbers as people write them: 1M, 125k, 15 %, 1e-4, 2.3 GB."""

from collections.abc import Iterable

_LARGE = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def short_count(value: float) -> str:
    """Write a count with three digits and a letter, fewer where nothing is lost: 1003520 -> "1.00M", 24000 -> "24k"."""
    if abs(value) >= 10**15:
        return plain_float(float(f"{value:.3g}"))
    for position, (unit, letter) in enumerate(_LARGE):
        if abs(value) >= unit:
            rounded = f"{value / unit:.3g}"
            if rounded == "1e+03" and position:
                # 999,999 rounds up into the next unit.
                return "1.00" + _LARGE[position - 1][1]
            if float(rounded) * unit != value:
                rounded = f"{value / unit:#.3g}".removesuffix(".")
            return rounded + letter
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def pluralize(count: int, noun: str) -> str:
    """Write a count of things: 1 text -> "1 text", 1200 of them -> "1,200 texts"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Write names as a list, of many the first ones: "a, b and 3 more"."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def exact_or_short(value: int) -> str:
    """Write a count in short where nothing is lost, else in full: 1000000 -> "1M", 30522 -> "30,522"."""
    for unit, letter in _LARGE[1:]:
        if value and value % (unit // 10) == 0 and value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:,}"


def share(value: float) -> str:
    """Write a share as percent: 0.15 -> "15 %", 0.125 -> "12.5 %"."""
    return f"{100 * value:.4g} %"


def plain_float(value: float) -> str:
    """Write a constant of a paper: 0.0001 -> "1e-4", 0.98 -> "0.98", 1e-12 -> "1e-12"."""
    if value != 0 and (abs(value) < 0.001 or abs(value) >= 1e6):
        mantissa, exponent = f"{value:.5e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.6g}"


def size_in_bytes(value: float) -> str:
    """Write an amount of memory with three digits: 437928960 -> "418 MiB"."""
    for unit, name in _BYTES:
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"
