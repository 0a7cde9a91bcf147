"""Printing: results to standard output, progress and errors to standard error, colored where that helps.

rich omits colors if the output is not a terminal or NO_COLOR is set.
"""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maskwright.reporting.console import SafeConsole

_WIDTH_WHEN_PIPED = 200

Cell = str | Text


def console() -> Console:
    """Return the console for results, on standard output."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Characters that a pipe's code page lacks (on Windows) are escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    return _console(sys.stdout)


def stderr_console() -> Console:
    """Return the console for progress, notes and errors, on standard error."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    # A pipe has no width; rich would fold tables at 80 columns and break them for grep and cut.
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _WIDTH_WHEN_PIPED
    return SafeConsole(file=stream, width=width, highlight=False)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    title: str = "",
    right: Sequence[int] = (),
    fixed: Sequence[int] = (0,),
) -> None:
    """Print a table of plain text cells; without a header if all column names are empty.

    `right` and `fixed` are the indices of right-aligned columns and of those whose cells are never wrapped.
    """
    grid = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(columns),
        header_style="bold",
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for number, name in enumerate(columns):
        grid.add_column(
            Text(name), justify="right" if number in right else "left", no_wrap=number in fixed, overflow="fold"
        )
    for row in rows:
        grid.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console().print(grid)


def heading(name: str, remark: str = "") -> None:
    """Print a title, a name and a remark, never wrapped."""
    console().print(Text.assemble((name, "bold"), (f"  {remark}" if remark else "", "dim")), soft_wrap=True)


def strong(text: str) -> Text:
    """Return a bold cell."""
    return Text(text, style="bold")


def faint(text: str) -> Text:
    """Return a dimmed cell."""
    return Text(text, style="dim")


def grouped(names: Iterable[str]) -> Iterator[str]:
    """Yield each name once and "" for its repeats, for the first column of a table."""
    last = None
    for name in names:
        yield "" if name == last else name
        last = name


def print_json(value: Any) -> None:
    """Print a JSON-like value on standard output, indented, in UTF-8; numbers that are not finite become null."""
    value = json.loads(json.dumps(value), parse_constant=lambda _: None)  # JSON has no NaN.
    # JSON is UTF-8, but a pipe on Windows uses an old code page. Lone surrogates, which file names may contain, become
    # JSON escapes (\udc80), the format of backslashreplace.
    # So do control characters that JSON allows (from 0x7F).
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    text = text.translate({code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)})
    data = text.encode("utf-8", "backslashreplace")
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:  # a notebook's output, or one caught in a StringIO
        sys.stdout.write(data.decode())
        return
    sys.stdout.flush()
    binary.write(data)
    binary.flush()


def note(text: str) -> None:
    """Print a note on standard error."""
    stderr_console().print(Text(text, style="dim"), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    stderr_console().print(Text.assemble(("warning: ", "bold yellow"), text), soft_wrap=True)


def fail(text: str) -> None:
    """Print an error as one line on standard error."""
    stderr_console().print(Text.assemble(("error: ", "bold red"), (text, "red")), soft_wrap=True)
