"""Shares of a whole, as maskings and replacements have them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]


def check_shares(shares: Mapping[str, float]) -> None:
    """Refuse shares that do not add up to 1, up to rounding.

    Args:
        shares: Each share under the name that a reader knows it by.

    Raises:
        ValueError: If they do not, with their names and their sum.
    """
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        written = " + ".join(f"{name} {share:g}" for name, share in shares.items())
        raise ValueError(f"{written} = {total:g}; make them add up to 1")
