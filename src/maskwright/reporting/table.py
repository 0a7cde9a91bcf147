"""Tables: one value for pages, Markdown, CSV and consoles."""

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from markupsafe import Markup
from rich import box
from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from maskwright.reporting.markdown import escape

Style = Literal["", "strong", "faint", "better", "worse"]
_ON_CONSOLE: dict[Style, str] = {"": "", "strong": "bold", "faint": "dim", "better": "green", "worse": "red"}
_LONG = 28
"""Characters of a cell from which a column of a page is wide."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with more than text: `note` follows the text, on pages in a smaller line below it.

    `color` is that of a dot before the text, on pages only.
    """

    text: str
    style: Style = ""
    note: str = ""
    color: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.note}" if self.note else self.text

    def html(self) -> Markup:
        if not (self.note or self.color):
            return Markup.escape(self.text)
        first, space, rest = self.text.partition(" ") if self.color else (self.text, "", "")
        dot = Markup('<i class="dot" style="background:{}"></i>').format(self.color) if self.color else ""
        text = Markup('<span class="whole">{}{}</span>{}{}').format(dot, first, space, rest)
        return text + Markup("<small>{}</small>").format(self.note) if self.note else text


Row = Sequence[str | Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain text, without markup.

    Attributes:
        columns: Names; all empty for a table without a header.
        right: Indices of columns of numbers, which are aligned to the right.
        merged: Whether pages and consoles show repeats in the first column once.
    """

    columns: Sequence[str | Cell]
    rows: Sequence[Row]
    right: Collection[int] = ()
    merged: bool = False

    def select(self, numbers: Sequence[int]) -> "Table":
        return replace(
            self,
            columns=[self.columns[number] for number in numbers],
            rows=[[row[number] for number in numbers] for row in self.rows],
            right=[index for index, number in enumerate(numbers) if number in self.right],
        )

    def split(self, width: int) -> Iterator["Table"]:
        """Yield tables of columns that fit a console without wrapping, each with the first column."""
        texts = ("\n".join(map(str, column)) for column in zip(self.columns, *self.rows, strict=True))
        first, *others = (3 + max(map(cell_len, text.split("\n"))) for text in texts)  # With the space between columns.
        shown, total = [0], first
        for number, each in enumerate(others, 1):
            if len(shown) > 1 and total + each > width:
                yield self.select(shown)
                shown, total = [0], first
            shown.append(number)
            total += each
        yield self.select(shown)

    def without(self, *names: str) -> "Table":
        return self.select([number for number, name in enumerate(self.columns) if str(name) not in names])

    def markdown(self) -> list[str]:
        rules = ["--:" if number in self.right else "---" for number in range(len(self.columns))]
        lines = [[_markdown(cell) for cell in row] for row in (self.columns, *self.rows)]
        return [f"| {' | '.join(line)} |" for line in (lines[0], rules, *lines[1:])]

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([map(str, row) for row in (self.columns, *self.rows)])
        return text.getvalue()

    def html(self) -> Markup:
        """Return a table that scrolls sideways where the page is too narrow."""
        texts = ([cell if isinstance(cell, str) else cell.text for cell in row] for row in self.rows)
        widest = [max(map(len, column)) for column in zip(*texts, strict=True)] or [0] * len(self.columns)
        kinds = [
            "number" if number in self.right else "long" if width > _LONG else "" for number, width in enumerate(widest)
        ]
        head, lines = Markup(), list[Markup]()
        if any(self.columns):
            names = Markup().join(_html("th", cell, kind) for cell, kind in zip(self.columns, kinds, strict=True))
            head = Markup("<thead><tr>{}</tr></thead>\n").format(names)
        for span, row in self._spans():
            cells = [_html("td", cell, kind) for cell, kind in zip(row, kinds, strict=True)][1:]
            first = [_html("th", row[0], kinds[0], f'scope="row" rowspan="{span}"')] if span else []
            lines.append(Markup("<tr>{}</tr>\n").format(Markup().join([*first, *cells])))
        body = Markup().join(lines)
        return Markup('<div class="scroll"><table>{}<tbody>\n{}</tbody></table></div>').format(head, body)

    def terminal(self, *, title: str = "", fixed: Collection[int] = (0,), plain: bool = False) -> RichTable:
        """Return a renderable for a console; cells of the columns `fixed` are never wrapped, `plain` has no rule."""
        grid = RichTable(
            title=Text(title, style="bold") if title else None,
            title_justify="left",
            box=None if plain else box.SIMPLE_HEAD,
            show_header=any(self.columns),
            header_style="dim" if plain else "bold",
            pad_edge=False,
            padding=(0, 2, 0, 0),
        )
        for number, name in enumerate(self.columns):
            right = "right" if number in self.right else "left"
            grid.add_column(Text(str(name)), justify=right, no_wrap=number in fixed, overflow="fold")  # type: ignore[arg-type]
        for span, row in self._spans():
            grid.add_row(*map(_text, row if span else ("", *row[1:])))
        return grid

    def _spans(self) -> Iterator[tuple[int, Row]]:
        """Yield rows with the number of rows that the first cell is for, 0 if it is that of the row before."""
        if not self.merged:
            yield from ((1, row) for row in self.rows)
            return
        for _, group in itertools.groupby(self.rows, key=lambda row: row[0]):
            rows = list(group)
            yield from zip([len(rows), *[0] * (len(rows) - 1)], rows, strict=True)


def _markdown(cell: str | Cell) -> str:
    text = escape(str(cell))
    return f"**{text}**" if text and isinstance(cell, Cell) and cell.style == "strong" else text


def _html(tag: str, cell: str | Cell, kind: str, attributes: str = "") -> Markup:
    style = cell.style if isinstance(cell, Cell) else ""
    classes = f' class="{f"{kind} {style}".strip()}"' if kind or style else ""
    opening = " ".join(filter(None, [tag, attributes.replace(' rowspan="1"', "")]))
    content = cell.html() if isinstance(cell, Cell) else Markup.escape(cell)
    if tag == "th":  # Names of fields and paths may break after these.
        content = Markup(re.sub(r"(?<=\w[._/])(?=\w)", "<wbr>", content))
    return Markup(f"<{opening}{classes}>{{}}</{tag}>").format(content)


def _text(cell: str | Cell) -> Text:
    return Text(str(cell), style=_ON_CONSOLE[cell.style] if isinstance(cell, Cell) else "")
