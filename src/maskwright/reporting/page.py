"""Self-contained HTML pages, for paper appendices, dark screens and phones, and the blocks that they consist of."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from markupsafe import Markup

from maskwright.reporting.table import Cell, Table

Block = Markup | Table
"""A table without rows is not shown."""


def page(heading: str, *blocks: Block) -> str:
    template, style = (_read(f"page.{suffix}") for suffix in ("html", "css"))
    return str(template.format(heading=heading, style=style, body=_join(blocks)))


def section(id: str, heading: str, *blocks: Block) -> Markup:
    """Return blocks below a heading; nothing if all are empty."""
    content = _join(blocks)
    return Markup('\n<h2 id="{}">{}</h2>\n{}').format(id, heading, content) if content else content


def paragraph(*parts: str, style: str = "note") -> Markup:
    """Return a paragraph of text and inline markup, nothing without any; "note" is small, "soft" faint."""
    return Markup('<p class="{}">{}</p>').format(style, Markup().join(parts)) if any(parts) else Markup()


def strong(text: str) -> Markup:
    """Return inline text of weight."""
    return Markup("<b>{}</b>").format(text)


def mark(text: str, kind: str = "masked", original: str = "") -> Markup:
    """Return a marked token: "masked", "replaced" or "kept"; `original` is struck through after it."""
    struck = Markup("<del>{}</del>").format(original) if original else ""
    return Markup('<mark class="{}">{}{}</mark>').format(kind, text, struck)


def items(texts: Iterable[str]) -> Markup:
    return Markup("<ul>{}</ul>").format(Markup().join(Markup("<li>{}</li>").format(text) for text in texts))


def details(summary: str, *blocks: Block, is_open: bool = False) -> Markup:
    """Return blocks that unfold; nothing if all are empty."""
    content, opened = _join(blocks), Markup(" open") if is_open else ""
    return (
        Markup("<details{}><summary>{}</summary>{}</details>").format(opened, summary, content) if content else content
    )


def figures(charts: Iterable[Markup]) -> Markup:
    """Return charts side by side, as many as fit."""
    return Markup('<div class="figures">{}</div>').format(Markup("\n").join(charts)) if any(charts) else Markup()


def legend(cells: Iterable[Cell]) -> Markup:
    """Return names with their colors."""
    return paragraph(*(Markup("<span>{}</span> ").format(cell.html()) for cell in cells), style="legend")


def origin(command: str, *facts: Mapping[str, object]) -> Markup:
    """Return the last section: the command, and facts on software and machine."""
    rows = [(name, str(value)) for each in facts for name, value in each.items() if name != "command"]
    return section("made", "How this was made", Markup("<pre>{}</pre>").format(command), Table(("", ""), rows))


def _join(blocks: Iterable[Block]) -> Markup:
    shown = (block if isinstance(block, Markup) else block.html() if block.rows else "" for block in blocks)
    return Markup("\n").join(filter(None, shown))


@cache
def _read(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))
