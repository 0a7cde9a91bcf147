"""A grid of settings to choose from: `--grid learning_rate=1e-4,3e-4`, each further `--grid` multiplies."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.core.errors import RecipeError
from maskwright.core.spec import override, parse_overrides
from maskwright.finetuning.hyperparameters import Hyperparameters

Point = Mapping[str, Any]


def grid_points(grid: Sequence[str], settings: Hyperparameters) -> list[Point]:
    """Return all points, each a value for every field of the grid; one empty point without a grid.

    Args:
        grid: Texts "field=value,value,...".
        settings: What the values are put into, to check them.

    Raises:
        RecipeError: If a field is unknown or named twice, or a value does not fit.
    """
    axes: dict[str, list[Any]] = {}
    for text in grid:
        name, _, values = text.partition("=")
        field, chosen = _axis(name, values)
        if "." in field:
            raise RecipeError(
                f"--grid {text!r} names a part of a field",
                todo=f"Give whole values of the field, e.g. `{field.partition('.')[0]}=[...],[...]`.",
            )
        if field in axes:
            raise RecipeError(f"--grid names {field!r} twice", todo="Give all its values at once, `a,b,c`.")
        if not chosen:
            raise RecipeError(f"--grid {text!r} names no value", todo=f"Write `{field}=a,b,c`.")
        # As the field's type has them: 3e-4 and 0.0003 are one value.
        fitted = [getattr(override(settings, [(field, value)]), field) for value in chosen]
        axes[field] = list(dict.fromkeys(fitted))
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _axis(name: str, values: str) -> tuple[str, list[Any]]:
    """Read "a,b", "[a,b]", or lists as values: "[a,b],[c,d]"."""
    texts = [f"{name}=[{values}]"]
    if values.lstrip().startswith("["):
        texts.insert(0, f"{name}={values}")
    for text in texts[:-1]:
        with contextlib.suppress(RecipeError):
            [(field, chosen)] = parse_overrides([text])
            return field, chosen
    [(field, chosen)] = parse_overrides(texts[-1:])
    return field, chosen


def point_name(point: Point) -> str:
    """Return a point's name, which is its folder's: "learning_rate=0.0001,batch_size=16"; "" of the empty one."""
    return ",".join(f"{name}={value}" for name, value in point.items())
