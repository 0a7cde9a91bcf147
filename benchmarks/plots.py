"""Plots as SVG files that are the same bytes for the same figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maskwright.core.errors import MaskwrightError

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "maskwright",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def draw(curve: Mapping[str, Any], folder: Path) -> str:
    """Draw a curve (`report.Curve` as plain data); return the file's name.

    Args:
        curve: What to draw.
        folder: Where the file goes.

    Raises:
        MaskwrightError: If matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MaskwrightError(
            "plots need matplotlib, which is not installed", todo="Run `pip install 'maskwright[bench]'`."
        ) from error
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        many = max((len(points) for points in curve["series"].values()), default=0) > 20
        for name, points in curve["series"].items():
            xs, ys = [point[0] for point in points], [point[1] for point in points]
            axes.plot(xs, ys, label=name, marker=None if many else "o", linewidth=1.5)
        if "x" in curve["logarithmic"]:
            axes.set_xscale("log", base=2)
            ticks = sorted({point[0] for points in curve["series"].values() for point in points})
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
            axes.minorticks_off()
        if "y" in curve["logarithmic"]:
            axes.set_yscale("log")
        elif not many:
            axes.set_ylim(bottom=0)
        axes.set(title=curve["title"], xlabel=curve["x"], ylabel=curve["y"])
        axes.legend(frameon=False)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{curve['name']}.svg"
        figure.savefig(folder / name, metadata={"Date": None})
    return name
