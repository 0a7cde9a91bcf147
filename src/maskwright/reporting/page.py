"""What the pages of a run and of a study share: the template `page.html.jinja`, and plots as inline SVG."""

import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLORS = ("#3b7dd8", "#d9730d", "#0f9d76", "#d64550", "#8b5cf6", "#0891b2", "#c2418f", "#7a8f0a")
"""Contrast of 3:1 or more on white and on near-black."""
INK = "#010203"
"""Stands for the page's text color in plots and is replaced by `currentColor`."""


def render(template: Path, filters: Mapping[str, Any], **values: Any) -> str:
    """Return a page from a template that extends `page.html.jinja`."""
    import jinja2  # slow to import

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, Path(__file__).parent]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters
    return str(environment.get_template(template.name).render(**values)) + "\n"


def data_rows(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the page's table of sources from the content of data_card.json."""
    return [
        {"name": each["name"], **each["kept"], "read_characters": each["read"]["characters"]}
        for each in card["sources"]
    ]


def figure(title: str, x: str, y: str) -> tuple[Any, Any]:
    """Return a matplotlib figure and its axes."""
    import matplotlib  # slow to import
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(4.3, 3.1), layout="constrained")
        axes = figure.subplots()
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.tick_params(colors=INK, which="both")
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_alpha(0.4)
    return figure, axes


def svg(figure: Any, name: str) -> str:
    """Return a figure as inline SVG that scales with the page and takes its text color and font."""
    import matplotlib
    from matplotlib.text import Text

    for each in figure.findobj(Text):
        each.set_parse_math(False)  # Names of recipes may contain dollar signs.
    text = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        warnings.simplefilter("ignore")  # Glyphs that matplotlib's font lacks; the browser's font has them.
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    # Ids are unique per page; matplotlib's are per figure.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\1{name}-", svg)
    return re.sub(r"font: ?([\d.]+px)[^;\"]*", r"font-size: \1", svg)
