"""Shares that sum to 1, in maskings and replacements."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise ValueError, with names and sum, if shares do not sum to 1 up to rounding."""
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        written = " + ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(f"{written} = {total:g}; make them add up to 1")
