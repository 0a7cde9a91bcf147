"""Charts as inline SVG that takes text color and font of the page."""

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

COLORS = ("#3b7dd8", "#d9730d", "#0f9d76", "#d64550", "#8b5cf6", "#0891b2", "#c2418f", "#7a8f0a")
"""Contrast of 3:1 or more on white and on near-black."""
INK = "#010203"
"""Stands for the page's text color and is replaced by `currentColor`."""
MARKERS = "osD^vPX*"
_CSS_VALUE = r"(?:&\w+;|[^;\"])*"
"""Of a property in an attribute; quotes in it are entities."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart through (x, y) points; `width` in points, 0 for markers alone."""

    points: Sequence[Sequence[float]]
    label: str = ""
    color: str = COLORS[0]
    marker: str = ""
    marker_size: float = 3
    width: float = 1.3
    opacity: float = 1.0
    dashed: bool = False


def chart(
    title: str,
    x: str,
    y: str,
    lines: Sequence[Line],
    *,
    prefixes: Literal["x", "y"] = "x",
    x_limit: float | None = None,
    from_zero: bool = False,
) -> Markup:
    """Return an SVG element; nothing without points. Lines with labels have a legend.

    `title` is unique in a page; `x` and `y` name the axes with their units; metric prefixes (2k, 3M) are on the axis
    `prefixes`; the horizontal axis is from 0 to `x_limit`.
    """
    import matplotlib  # slow to import
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import EngFormatter

    lines = [line for line in lines if len(line.points)]
    if not lines:
        return Markup()
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(4.3, 3.1), layout="constrained")
        axes = figure.subplots()
    for line in lines:
        axes.plot(
            *zip(*line.points, strict=True),
            label=line.label or None,
            color=line.color,
            marker=line.marker,
            markersize=line.marker_size,
            linewidth=line.width,
            linestyle=("--" if line.dashed else "-") if line.width else "",
            alpha=line.opacity,
        )
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    (axes.xaxis if prefixes == "x" else axes.yaxis).set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    if x_limit is not None:
        axes.set_xlim(0, x_limit)
    if from_zero:
        axes.set_ylim(bottom=0)
    axes.tick_params(colors=INK, which="both")
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_alpha(0.4)
    if any(line.label for line in lines):
        axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    for each in figure.findobj(Text):
        each.set_parse_math(False)  # Names of recipes may contain dollar signs.
    text, name = io.StringIO(), re.sub(r"\W+", "-", title)
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        warnings.simplefilter("ignore")  # Glyphs that matplotlib's font lacks; the browser's font has them.
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    # Ids are unique per page; matplotlib's are per figure.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    # matplotlib before 3.11 writes size and family as one property.
    svg = re.sub(rf"font: ?([\d.]+px){_CSS_VALUE}", r"font-size: \1", svg)
    return Markup(re.sub(rf" ?font-family:{_CSS_VALUE};?", "", svg))
